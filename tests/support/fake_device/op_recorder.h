// OpRecorder: records the operators that a function calls, and runs them again on the same memory, as
// a CUDA graph does with kernels: the host code of the function is not called again, arguments that are
// no tensors keep their values, and every result is written to the memory of the recorded one.
//
// Like a capture, recording changes nothing: the operators run, because their results have to exist,
// and what they wrote is restored afterwards.
//
// OperatorInterception makes the operators of a thread call an OperatorHook first, below autograd and
// autocast. It uses the dispatch key Fake, which LibTorch leaves to other libraries.
//
// Threads: a recorder is used by one thread at a time.
// Errors:  c10::Error for an operator that a capture does not permit, because it reads a value back.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace stoker::fake_device {

class OpRecorder {
 public:
  // The operators between begin() and end() are recorded. end() restores all memory; also after an
  // exception, when the recording is not usable.
  void begin();
  void end();

  void call(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack& stack);
  // Each replay calls `function` between the operators.
  void add(std::function<void()> function) { ops_.emplace_back(std::move(function)); }

  // Runs the operators; calls `before_op` before each.
  template <typename BeforeOp>
  void replay(const BeforeOp& before_op) {
    poison_results();
    for (const auto& each : ops_) {
      if (const auto* const function = std::get_if<std::function<void()>>(&each)) {
        (*function)();
        continue;
      }
      before_op();
      run(std::get<Recorded>(each));
    }
  }
  // Overwrites the results, which are valid only during a replay.
  void poison_results();
  uint64_t bytes() const;  // of the results

 private:
  struct Recorded {
    c10::OperatorHandle op;
    std::vector<c10::IValue> arguments;
    std::vector<std::pair<size_t, at::Tensor>>
        results;  // position and tensor; no views or arguments
  };
  static void run(const Recorded& recorded);
  void save_before_write(const c10::IValue& argument);

  std::vector<std::variant<Recorded, std::function<void()>>> ops_;
  std::set<const c10::StorageImpl*> own_storages_;
  std::vector<c10::Storage> storages_;  // of the results
  std::vector<std::pair<c10::Storage, std::vector<std::byte>>> before_;
  std::set<const c10::StorageImpl*> saved_;
  at::Tensor generator_;
};

class OperatorHook {
 public:
  virtual ~OperatorHook() = default;
  // Calls the operator.
  virtual void on_operator(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                           torch::jit::Stack& stack) = 0;
  // Calls `kernel`, or a copy of it later.
  virtual void on_kernel(const std::function<void()>& kernel) = 0;
};

// For the lifetime of the object, in the thread that creates it.
class OperatorInterception {
 public:
  explicit OperatorInterception(OperatorHook& hook);
  ~OperatorInterception();
  OperatorInterception(const OperatorInterception&) = delete;
  OperatorInterception& operator=(const OperatorInterception&) = delete;

 private:
  const c10::impl::IncludeDispatchKeyGuard include_;
};

// Calls the operator's kernel.
void call_kernel(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack& stack);
// A kernel that is no operator: passes it to the hook of this thread; without one, calls it.
void submit_kernel(const std::function<void()>& kernel);

}  // namespace stoker::fake_device
