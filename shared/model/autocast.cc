#include "shared/model/autocast.h"

#include <ATen/autocast_mode.h>

namespace stoker::model {

Autocast::Autocast(std::optional<c10::ScalarType> maybe_dtype, c10::DeviceType device)
    : on_(maybe_dtype.has_value()), device_(device) {
  if (!on_) return;
  was_enabled_ = at::autocast::is_autocast_enabled(device_);
  was_dtype_ = at::autocast::get_autocast_dtype(device_);
  at::autocast::set_autocast_enabled(device_, true);
  at::autocast::set_autocast_dtype(device_, *maybe_dtype);
  at::autocast::increment_nesting();
}

Autocast::~Autocast() {
  if (!on_) return;
  // The cached low-precision weights are valid for one step only.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, was_enabled_);
  at::autocast::set_autocast_dtype(device_, was_dtype_);
}

}  // namespace stoker::model
