#include "bench/operation_time.h"

#include <memory>

#include <ATen/record_function.h>

namespace stoker::bench {
namespace {

using Clock = std::chrono::steady_clock;

thread_local int depth = 0;
thread_local Clock::time_point began;
thread_local std::chrono::nanoseconds inside{0};

std::unique_ptr<at::ObserverContext> enter(const at::RecordFunction& /*operation*/) {
  if (depth++ == 0) began = Clock::now();
  return nullptr;
}

void leave(const at::RecordFunction& /*operation*/, at::ObserverContext* /*context*/) {
  if (--depth == 0) inside += Clock::now() - began;
}

}  // namespace

OperationTime::OperationTime() {
  depth = 0;
  inside = std::chrono::nanoseconds(0);
  callback_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(enter, leave).scopes({at::RecordScope::FUNCTION}));
}

OperationTime::~OperationTime() { at::removeCallback(callback_); }

std::chrono::nanoseconds OperationTime::total() const { return inside; }

}  // namespace stoker::bench
