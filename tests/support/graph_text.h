// A small graph.json of stoker-export with each kind of node and argument. Its schemas and arguments are those of PyTorch.
#pragma once

#include <string>

namespace stoker::test {

inline std::string graph_text() {
  const std::string tested = R"({"sha256": ")" + std::string(64, 'a') +
                             R"(", "norm": 1.5, "projection": -0.5, "bound": 1e-6})";
  const std::string step = R"({
    "inputs": [{"v": 0, "dtype": "F32", "shape": [null, 8]}, {"v": 1, "dtype": "I64", "shape": [null]}],
    "num_values": 20,
    "nodes": [
      {"op": "aten::linear", "args": [{"v": 0}, {"t": 0}, {"t": 1}], "results": [2], "module": "fc"},
      {"op": "aten::sym_size.int", "args": [{"v": 0}, 0], "results": [3]},
      {"size": "mul", "args": [{"v": 3}, 4], "results": [4]},
      {"op": "aten::add.Tensor", "args": [{"t": 2}, 1], "kwargs": {"alpha": {"f": "2.0"}}, "results": [5]},
      {"call": "set_grad_enabled", "enabled": false, "operands": [{"v": 2}], "results": [6], "graphs": [
        {"inputs": [7], "nodes": [{"op": "aten::dropout", "args": [{"v": 7}, {"f": "0.1"}, true], "results": [8]}],
         "outputs": [{"v": 8}]}]},
      {"call": "autocast", "enabled": true, "dtype": {"dtype": "bfloat16"}, "operands": [{"v": 6}, {"v": 4}], "results": [9], "graphs": [
        {"inputs": [10, 11], "nodes": [], "outputs": [{"v": 10}]}]},
      {"op": "aten::zeros", "args": [[{"v": 3}, 4]], "kwargs": {"dtype": {"dtype": "float32"}, "layout": null, "device": {"device": "cpu"},
       "pin_memory": false}, "results": [12]},
      {"call": "cond", "predicate": {"v": 1}, "operands": [{"v": 12}], "results": [13], "graphs": [
        {"inputs": [14], "nodes": [], "outputs": [{"v": 14}]}, {"inputs": [15], "nodes": [], "outputs": [{"v": 15}]}]},
      {"op": "aten::cross_entropy_loss", "args": [{"v": 2}, {"v": 1}, null, 2, -100, {"f": "0.05"}], "results": [16]},
      {"op": "aten::chunk", "args": [{"v": 2}, 2, 1], "results": [17]},
      {"size": "getitem", "args": [{"v": 17}, 0], "results": [18]}],
    "outputs": [{"v": 16}, {"v": 3}], "updates": [{"tensor": 2, "value": {"v": 5}}]})";
  return R"({"format": 1, "torch": "2.11.0", "num_inputs": 1, "batch": {"min": 1, "max": null}, "outputs": [""], "checkpointed": ["fc", ""],
  "tensors": [
    {"name": "fc.weight", "kind": "parameter", "dtype": "F32", "shape": [4, 8], "requires_grad": true, "persistent": true},
    {"name": "fc.bias", "kind": "parameter", "dtype": "F32", "shape": [4], "requires_grad": false, "persistent": true},
    {"name": "steps", "kind": "buffer", "dtype": "I64", "shape": [], "requires_grad": false, "persistent": true},
    {"name": "constant.3", "kind": "constant", "dtype": "BOOL", "shape": [2], "requires_grad": false, "persistent": false}],
  "tied": {"head.weight": "fc.weight"},
  "operators": {
    "aten::linear": "aten::linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor",
    "aten::sym_size.int": "aten::sym_size.int(Tensor self, int dim) -> SymInt",
    "aten::add.Tensor": "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
    "aten::dropout": "aten::dropout(Tensor input, float p, bool train) -> Tensor",
    "aten::chunk": "aten::chunk(Tensor(a -> *) self, int chunks, int dim=0) -> Tensor(a)[]",
    "aten::zeros": "aten::zeros(SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
    "aten::cross_entropy_loss": "aten::cross_entropy_loss(Tensor self, Tensor target, Tensor? weight=None, int reduction=1, SymInt ignore_index=-100, float label_smoothing=0.) -> Tensor"},
  "programs": {"train": )" +
         step + R"(, "eval": )" + step + R"(,
    "predict": {"inputs": [{"v": 0, "dtype": "F32", "shape": [null, 8]}], "num_values": 3,
      "nodes": [{"op": "aten::linear", "args": [{"v": 0}, {"t": 0}, {"t": 1}], "results": [2], "module": "fc"}],
      "outputs": [{"v": 2}], "updates": []}},
  "self_test": {"seed": 2026, "loss": )" +
         tested + R"(, "eval_loss": )" + tested + R"(, "gradients": {"fc.weight": )" + tested +
         R"(}, "buffers": {"steps": )" + tested + R"(}, "outputs": [)" + tested + R"(]},
  "files": {"model.safetensors": ")" +
         std::string(64, '0') + R"(", "self_test.safetensors": ")" + std::string(64, 'f') +
         R"("}})";
}

}  // namespace stoker::test
