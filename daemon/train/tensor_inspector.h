// TensorInspector: computes statistics of parameters, gradients, module outputs and inputs during
// training.
//
// Inputs are the tensors of the step's first batch as the workers have written them. Gradients are those of the complete
// step before clipping, parameters those after the update, outputs those of the step's first micro-batch.
//
// Threads:   the trainer thread only.
// Blocking:  never for a client; waits for the device at the end of a sampled step.
// Ownership: the model and the board must outlive this object.
// Errors:    LibTorch's exceptions pass through begin_forward(), on_gradients() and end_step().
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "daemon/train/activation_recorder.h"
#include "daemon/train/inspection_board.h"
#include "daemon/train/mailbox.h"
#include "shared/feed/batch_receiver.h"
#include "shared/model/model.h"

namespace stoker::train {

class TensorInspector {
 public:
  // `input_names`: of the tensors of a batch.
  TensorInspector(const model::Model& model, InspectionBoard& board,
                  std::vector<std::string> input_names = {})
      : model_(model), board_(board), input_names_(std::move(input_names)) {}

  // Replies with the inspection's number and its tensor counts. kNotFound: the glob matches
  // nothing; the message suggests the closest name. kInvalidArgument: it matches too many tensors.
  // kBusy: too many inspections are open.
  void open(const control::OpenInspection& command, uint64_t step, const Done& done);
  bool any() const { return !inspections_.empty(); }

  // Call in this order in each step; `step` is its number. The inspections that sample the step are
  // selected in begin_step().
  void begin_step(uint64_t step);
  // The first batch of the step. `files_of` lists the files of a ticket and is called only if
  // inputs are inspected.
  using FilesOf = std::function<std::vector<std::string>(uint64_t ticket)>;
  void on_batch(const feed::ReceivedBatch& batch, const FilesOf& files_of);
  void begin_forward();
  void end_forward() noexcept;
  void on_gradients();
  void end_step();
  void end_all(const std::string& why);

 private:
  struct TensorEntry {
    const char* kind;
    std::string name;
    at::Tensor statistics;
  };
  struct Inspection {
    uint64_t number = 0;
    control::OpenInspection request;
    // For gradients, the parameters that own them.
    std::vector<std::pair<std::string, at::Tensor>> parameters, gradients;
    std::vector<std::string> outputs, inputs;
    uint64_t rows = 0;
    bool is_sampled = false;  // samples the current step
    std::vector<TensorEntry> entries;
    // The fields of the first batch of the current step, and its inputs.
    boost::json::object batch;
    boost::json::array inputs_seen;
  };
  Result<Inspection> match(const control::OpenInspection& request) const;
  void on_output(const std::string& module, const at::Tensor& output);
  static std::string format_record(uint64_t step, Inspection& inspection);

  const model::Model& model_;
  InspectionBoard& board_;
  const std::vector<std::string> input_names_;
  std::vector<Inspection> inspections_;
  uint64_t step_ = 0;
  std::optional<ActivationRecorder> outputs_;  // created for the first inspection of outputs
  bool has_forward_ = false;                   // the current step already had a forward pass
};

}  // namespace stoker::train
