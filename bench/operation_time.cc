#include "bench/operation_time.h"

#include <memory>

#include <ATen/record_function.h>

namespace stoker::bench {
namespace {

using Clock = std::chrono::steady_clock;

thread_local int depth = 0;
thread_local Clock::time_point start;
thread_local std::chrono::nanoseconds in_operations{0};

std::unique_ptr<at::ObserverContext> enter(const at::RecordFunction& /*operation*/) {
  if (depth++ == 0) start = Clock::now();
  return nullptr;
}

void leave(const at::RecordFunction& /*operation*/, at::ObserverContext* /*context*/) {
  if (--depth == 0) in_operations += Clock::now() - start;
}

}  // namespace

OperationTime::OperationTime() {
  depth = 0;
  in_operations = std::chrono::nanoseconds(0);
  callback_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(enter, leave).scopes({at::RecordScope::FUNCTION}));
}

OperationTime::~OperationTime() { at::removeCallback(callback_); }

std::chrono::nanoseconds OperationTime::total() const { return in_operations; }

}  // namespace stoker::bench
