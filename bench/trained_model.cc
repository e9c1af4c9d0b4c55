#include "bench/trained_model.h"

#include <algorithm>
#include <cstring>

#include "shared/base/tensor_role.h"
#include "shared/model/channels_last.h"

namespace stoker::bench {
namespace {

// Fills with integers below `limit` that are at most 255.
void fill(const TensorSpec& spec, uint64_t limit, std::span<std::byte> bytes) {
  const size_t width = dtype_bytes(spec.dtype);
  uint64_t state = 1;
  std::ranges::fill(bytes, std::byte{0});
  for (size_t at = 0; at < bytes.size(); at += width) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    if (spec.dtype == DType::kF32) {
      const float number = static_cast<float>(state >> 40) / static_cast<float>(1 << 23) - 1.0f;
      std::memcpy(&bytes[at], &number, sizeof number);
    } else {
      bytes[at] = static_cast<std::byte>((state >> 33) % std::min<uint64_t>(limit, 256));
    }
  }
}

}  // namespace

Result<TrainedModel> TrainedModel::create(const TrainingSetup& setup, c10::Device device,
                                          bool channels_last) {
  TrainedModel trained;
  STOKER_ASSIGN_OR_RETURN(trained.model,
                          model::make_model(setup.model, setup.sample, setup.classes));
  STOKER_ASSIGN_OR_RETURN(trained.task,
                          task::make_task(setup.task, setup.normalize ? &*setup.normalize : nullptr,
                                          setup.sample, setup.classes));
  trained.model->to(device);
  if (channels_last) model::use_channels_last(*trained.model);
  trained.model->train();
  model::NamedTensors parameters;
  for (const auto& item : trained.model->named_parameters())
    parameters.emplace_back(item.key(), item.value());
  STOKER_ASSIGN_OR_RETURN(trained.optimizer, train::Optimizer::create({}, {}, parameters));
  return trained;
}

int64_t TrainedModel::parameters() const {
  int64_t count = 0;
  for (const auto& [name, tensor] : model::named_tensors(*model)) count += tensor.numel();
  return count;
}

void fill_batch(const TrainingSetup& setup, const ring::BatchLayout& layout,
                std::span<std::byte> batch) {
  for (size_t i = 0; i < layout.sample().size(); ++i) {
    const TensorSpec& spec = layout.sample()[i];
    const bool holds_classes = role_of(spec) != TensorRole::kInput;
    fill(spec, holds_classes ? setup.classes : 256,
         batch.subspan(layout.offset(i), spec.bytes() * setup.batch));
  }
}

}  // namespace stoker::bench
