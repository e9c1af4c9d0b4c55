#include "daemon/train/host_engine.h"

#include "daemon/train/batch_view.h"

namespace stoker::train {

void HostEngine::run(const ring::ReadyBatch& batch, Portion portion) {
  const ring::BatchLayout& layout = shapes_.of(batch.ticket);
  task::Batch tensors = batch_view(layout, batch.slot.data(), c10::Device(c10::kCPU));
  calls_.work(calls_.prepare(std::move(tensors), batch.ticket), portion);
  calls_.release(batch.ticket);
}

void HostEngine::read(const std::vector<at::Tensor>& scalars, Take take) {
  std::vector<double> values;
  values.reserve(scalars.size());
  for (const at::Tensor& scalar : scalars) values.push_back(scalar.item<double>());
  take(values);
}

}  // namespace stoker::train
