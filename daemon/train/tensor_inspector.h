// TensorInspector: statistics of parameters, gradients and outputs of modules, while training runs.
//
// Gradients are those of the whole step before clipping, parameters those after its update, outputs
// those of its first micro-batch.
//
// Threads:  the trainer's thread only.
// Blocking: never for a client; at the end of a step that a tap looks at, for the device.
// Owner:    all that the constructor takes must outlive it.
// Errors:   LibTorch's exceptions pass through begin_forward() and the two after it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "daemon/train/activation_recorder.h"
#include "daemon/train/inspection_board.h"
#include "daemon/train/mailbox.h"
#include "shared/model/model.h"

namespace stoker::train {

class TensorInspector {
 public:
  TensorInspector(const model::Model& model, InspectionBoard& board)
      : model_(model), board_(board) {}

  // Answered with the tap's number and what it looks at; kNotFound where the glob matches nothing,
  // with the nearest name; kInvalidArgument where it matches too much; kBusy.
  void open(const Request& request, uint64_t step);
  bool any() const { return !inspections_.empty(); }

  // In this order in each step, `step` being its number. What the taps look at is decided when the
  // step begins.
  void begin_step(uint64_t step);
  void begin_forward();
  void end_forward() noexcept;
  void on_gradients();
  void end_step();
  void end_all(const std::string& why);

 private:
  struct Seen {
    const char* kind;
    std::string name;
    at::Tensor statistics;
  };
  struct Inspection {
    uint64_t number = 0;
    control::InspectionRequest request;
    // Of gradients the parameters, which know theirs.
    std::vector<std::pair<std::string, at::Tensor>> parameters, gradients;
    std::vector<std::string> outputs;
    uint64_t rows = 0;
    bool is_sampled = false;  // at this step
    std::vector<Seen> seen;
  };
  Result<Inspection> match(const control::InspectionRequest& request) const;
  void on_output(const std::string& module, const at::Tensor& output);
  static std::string format_record(uint64_t step, const Inspection& inspection);

  const model::Model& model_;
  InspectionBoard& board_;
  std::vector<Inspection> inspections_;
  uint64_t step_ = 0;
  std::optional<ActivationRecorder> outputs_;  // made when the first tap wants it
  bool has_forward_ = false;                   // of this step
};

}  // namespace stoker::train
