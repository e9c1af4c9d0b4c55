#include "daemon/train/cpu_engine.h"

#include <chrono>

#include "daemon/train/batch_view.h"

namespace stoker::train {

void CpuEngine::run(const ring::ReadyBatch& batch, MicroBatchInfo micro_batch) {
  const auto began = std::chrono::steady_clock::now();
  const ring::BatchLayout& layout = shapes_.of(batch.ticket);
  task::Batch tensors = batch_view(layout, batch.slot.data(), c10::Device(c10::kCPU));
  calls_.work(calls_.prepare(std::move(tensors), batch.ticket), micro_batch);
  calls_.release(batch.ticket);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - began;
  usage_.work_ms += took.count();
  ++usage_.works;
}

void CpuEngine::read(const std::vector<at::Tensor>& scalars, OnRead on_read) {
  std::vector<double> values;
  values.reserve(scalars.size());
  for (const at::Tensor& scalar : scalars) values.push_back(scalar.item<double>());
  on_read(values);
}

}  // namespace stoker::train
