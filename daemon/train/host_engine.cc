#include "daemon/train/host_engine.h"

#include <chrono>

#include "daemon/train/batch_view.h"

namespace stoker::train {

void HostEngine::run(const ring::ReadyBatch& batch, Portion portion) {
  const auto began = std::chrono::steady_clock::now();
  const ring::BatchLayout& layout = shapes_.of(batch.ticket);
  task::Batch tensors = batch_view(layout, batch.slot.data(), c10::Device(c10::kCPU));
  calls_.work(calls_.prepare(std::move(tensors), batch.ticket), portion);
  calls_.release(batch.ticket);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - began;
  use_.work_ms += took.count();
  ++use_.works;
}

void HostEngine::read(const std::vector<at::Tensor>& scalars, Take take) {
  std::vector<double> values;
  values.reserve(scalars.size());
  for (const at::Tensor& scalar : scalars) values.push_back(scalar.item<double>());
  take(values);
}

}  // namespace stoker::train
