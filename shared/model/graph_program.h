// GraphProgram: a program of a graph file, bound to the operators of this LibTorch. Runs them one after another under
// LibTorch's autograd and autocast, as Python does, without Python.
//
// Threads: const methods may be called by several threads, with other tensors. Random operators use the default
//          generator of the device.
// Owner:   a recomputed part refers to the program and the table, which must outlive the backward pass.
// Errors:  run() throws c10::Error, with the operator and the module in the message.
#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "shared/base/status.h"
#include "shared/graph/graph_file.h"

namespace stoker::model {

// kMismatch: an operator of the file is not in this LibTorch, or has another schema than at the export.
Status check_operators(const graph::GraphFile& file);

class GraphProgram {
 public:
  // kCorrupt: the arguments of an operator do not fit its schema; names the node. Call check_operators() before.
  static Result<std::unique_ptr<const GraphProgram>> make(const graph::Program& program);
  ~GraphProgram();
  GraphProgram(const GraphProgram&) = delete;
  GraphProgram& operator=(const GraphProgram&) = delete;

  // `inputs` as in the file, whose dtypes and shapes the caller has checked. `table`: the tensors of the file on
  // one device, on which everything runs; operators update its buffers. Each value is freed after its last use.
  std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs,
                              const std::vector<at::Tensor>& table) const;

  // The first node for which the host waits for values, as far as LibTorch marks its operators: the size of a
  // result follows from them, or the branch of a cond. Empty: none.
  std::string capture_obstacle() const;

 private:
  struct State;
  explicit GraphProgram(std::unique_ptr<const State> state);
  const std::unique_ptr<const State> state_;
};

}  // namespace stoker::model
