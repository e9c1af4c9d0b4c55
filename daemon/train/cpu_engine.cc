#include "daemon/train/cpu_engine.h"

#include <chrono>

#include "daemon/train/batch_view.h"

namespace stoker::train {

void CpuEngine::run(const feed::ReceivedBatch& batch, MicroBatchInfo micro_batch) {
  const auto began = std::chrono::steady_clock::now();
  calls_.work(calls_.prepare(batch_view(batch), batch.ticket, micro_batch), micro_batch);
  if (micro_batch.is_last) calls_.exchange();
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
