// Links the fake device into a stokerd, which then has train.device: fake.
#include "daemon/train/device.h"
#include "tests/support/fake_device/fake_module.h"

namespace {

[[maybe_unused]] const bool kIsRegistered = [] {
  stoker::train::register_fake_module(stoker::fake_device::module_of_seed);
  return true;
}();

}  // namespace
