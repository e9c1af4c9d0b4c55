// What a graph file may contain, and the error of each thing that it may not.
#include "shared/graph/graph_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/graph_text.h"

namespace stoker::graph {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// The error of the file in which the first `from` is replaced by `to`.
Status error_after(const std::string& from, const std::string& to) {
  std::string text = test::graph_text();
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  const auto file = parse_graph_file(text.replace(at, from.size(), to), "m/graph.json");
  EXPECT_FALSE(file.ok()) << to;
  EXPECT_THAT(file.status().message(), HasSubstr("m/graph.json: "));
  EXPECT_THAT(file.status().message(), Not(HasSubstr("\n")));
  return file.status();
}
std::string message_after(const std::string& from, const std::string& to) {
  return error_after(from, to).message();
}

TEST(GraphFile, HasPrograms) {
  const auto file = parse_graph_file(test::graph_text(), "graph.json");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->tensors.size(), 4u);
  EXPECT_EQ(file->tied.at("head.weight"), "fc.weight");
  const Graph& train = file->train.graph;
  ASSERT_EQ(train.nodes.size(), 11u);
  EXPECT_EQ(train.nodes[0].name, "aten::linear");
  EXPECT_EQ(train.nodes[0].module, "fc");
  EXPECT_EQ(train.nodes[3].keyword_arguments[0].first, "alpha");
  EXPECT_EQ(train.nodes[3].keyword_arguments[0].second.number, 2.0);
  EXPECT_EQ(train.nodes[4].kind, Node::Kind::kSetGradEnabled);
  EXPECT_EQ(train.nodes[4].graphs[0].nodes[0].arguments[1].number, 0.1) << "the nearest double";
  EXPECT_EQ(train.nodes[7].graphs.size(), 2u);
  EXPECT_EQ(file->train.updates[0].first, 2);
  EXPECT_EQ(file->predict.inputs[0].shape, (std::vector<int64_t>{8})) << "of one sample";
  EXPECT_EQ(file->max_batch, std::nullopt);
  EXPECT_FALSE(file->tensors[3].is_persistent);
}

TEST(GraphFile, RejectsOtherFormats) {
  const Status later = error_after(R"("format": 1)", R"("format": 2)");
  EXPECT_EQ(later.code(), StatusCode::kMismatch);
  EXPECT_THAT(later.message(), HasSubstr("has format 2, this program reads format 1"));
  EXPECT_THAT(message_after(R"("format": 1,)", "{"), HasSubstr("not JSON"));
  EXPECT_THAT(parse_graph_file("[]", "f").status().message(), HasSubstr("must be an object"));
  EXPECT_THAT(parse_graph_file(std::string(100'000, '['), "f").status().message(),
              HasSubstr("not JSON"));
}

TEST(GraphFile, RejectsOperatorsThatAreNotPlainComputation) {
  const auto renamed = [](const std::string& name) {
    return message_after("\"aten::dropout\": \"aten::dropout", "\"" + name + "\": \"" + name);
  };
  for (const char* const name :
       {"aten::from_file", "aten::set_.source_Storage", "aten::resize_", "aten::as_strided_",
        "aten::_foreach_add_.List", "aten::_sparse_coo_tensor_unsafe", "aten::sparse_resize_",
        "aten::record_stream", "aten::set_data", "aten::save", "aten::mkldnn_linear", "prim::Print",
        "torchvision::nms", "inductor::_alloc", "atenfoo",
        // Indices of these are not checked.
        "aten::max_pool2d_with_indices_backward", "aten::adaptive_max_pool2d_backward",
        "aten::adaptive_max_pool3d_backward", "aten::embedding_dense_backward",
        "aten::linalg_lu_solve", "aten::lu_unpack",
        // These change a tensor of the table, or a shape that others rely on.
        "aten::add.out", "aten::div.out", "aten::t_", "aten::transpose_", "aten::unsqueeze_",
        "aten::squeeze_", "aten::swapaxes_", "aten::as_strided", "aten::empty_strided",
        "aten::pin_memory", "aten::rename", "aten::fbgemm_linear_int8_weight",
        "aten::native_batch_norm", "aten::linear.out", "aten::relu.default"})
    EXPECT_THAT(renamed(name), HasSubstr("the operator is not allowed")) << name;
  EXPECT_THAT(renamed("aten::relu"), HasSubstr("operator aten::dropout is not in operators"));
  EXPECT_THAT(
      message_after("\"aten::dropout\": \"aten::dropout", "\"aten::dropout\": \"aten::relu"),
      HasSubstr("schema of another operator"));
}

TEST(GraphFile, RejectsValuesThatAreNotDefinedOnce) {
  EXPECT_THAT(message_after(R"("args": [{"v": 0}, {"t": 0})", R"("args": [{"v": 2}, {"t": 0})"),
              HasSubstr("programs.train.nodes[0].args[0].v: value 2 is used before"));
  EXPECT_THAT(message_after(R"("results": [2])", R"("results": [0])"),
              HasSubstr("value 0 is defined twice"));
  EXPECT_THAT(message_after(R"("results": [2])", R"("results": [20])"),
              HasSubstr("must be a number from 0 to 19"));
  EXPECT_THAT(message_after(R"("num_values": 20)", R"("num_values": 1000000000000)"),
              HasSubstr("programs.train.num_values: must be a number from 0 to 1000000"));
  EXPECT_THAT(message_after(R"("num_values": 20)", R"("num_values": 0)"),
              HasSubstr("defined twice"));
  EXPECT_THAT(message_after(R"("outputs": [{"v": 8}])", R"("outputs": [{"v": 2}])"),
              HasSubstr("nodes[4].graphs[0].outputs[0].v: value 2 is used before"))
      << "a part sees its own values only";
  EXPECT_THAT(message_after(R"("outputs": [{"v": 16})", R"("outputs": [{"v": 8})"),
              HasSubstr("value 8 is used before"));
}

TEST(GraphFile, RejectsTensorsOutsideTheTable) {
  for (const char* const index : {"4", "-1", "9223372036854775807", "1e3", "\"0\""})
    EXPECT_THAT(message_after(R"({"t": 0})", std::string(R"({"t": )") + index + "}"),
                HasSubstr("programs.train.nodes[0].args[1].t: must be a number from 0 to 3"));
  EXPECT_THAT(message_after(R"({"tensor": 2)", R"({"tensor": 0)"),
              HasSubstr("only buffers can be replaced"));
}

TEST(GraphFile, RejectsArgumentsThatAreNone) {
  EXPECT_THAT(message_after(R"({"f": "2.0"})", R"({"f": "2.0x"})"), HasSubstr("is not a float"));
  EXPECT_THAT(message_after(R"({"f": "2.0"})", R"({"f": 2.0})"), HasSubstr("must be a text"));
  EXPECT_THAT(message_after(R"({"f": "2.0"})", "2.0"), HasSubstr("is not an argument"));
  EXPECT_THAT(message_after(R"({"f": "2.0"})", R"({"g": 1})"), HasSubstr("unknown key g"));
  EXPECT_THAT(message_after(R"({"f": "2.0"})", "{}"), HasSubstr("is not an argument"));
  EXPECT_THAT(message_after(R"("dtype": {"dtype": "bfloat16"})", R"("dtype": 5)"),
              HasSubstr("dtype must be a dtype or null"));
}

TEST(GraphFile, RejectsOtherConstructs) {
  EXPECT_THAT(message_after(R"("size": "mul")", R"("size": "exec")"),
              HasSubstr("the function exec is unknown"));
  EXPECT_THAT(message_after(R"("size": "mul")", R"("size": "neg")"), HasSubstr("other arguments"));
  EXPECT_THAT(message_after(R"("call": "cond")", R"("call": "scan")"),
              HasSubstr("the construct scan is unknown"));
  EXPECT_THAT(message_after(R"("call": "cond")", R"("call": "set_grad_enabled", "enabled": true)"),
              HasSubstr("must have 1 graphs"));
  EXPECT_THAT(message_after(R"({"inputs": [15])", R"({"inputs": [])"), HasSubstr("value 15"));
  EXPECT_THAT(message_after(R"({"inputs": [10, 11])", R"({"inputs": [10])"),
              HasSubstr("has other inputs or outputs than its node"));
}

TEST(GraphFile, LimitsDimensions) {
  std::string dims = "1";
  for (int i = 0; i < 64; ++i) dims += ", 1";
  EXPECT_THAT(message_after(R"("shape": [4, 8])", "\"shape\": [" + dims + "]"),
              HasSubstr("tensors[0]: has too many dimensions"));
}

TEST(GraphFile, RejectsTablesThatAreNoModule) {
  EXPECT_THAT(message_after(R"("name": "fc.bias")", R"("name": "fc.weight")"),
              HasSubstr("tensors[1]: has a name that occurs twice"));
  EXPECT_THAT(message_after(R"("name": "fc.bias")", R"("name": "fc")"),
              HasSubstr("fc is the name of a tensor and of a module"));
  for (const char* const name : {"", ".a", "a.", "a..b"})
    EXPECT_THAT(message_after(R"("name": "fc.bias")", std::string(R"("name": ")") + name + '"'),
                HasSubstr("is not a name"));
  EXPECT_THAT(message_after(R"("name": "fc.bias")", R"("name": "a\nb")"), HasSubstr("control"));
  EXPECT_THAT(message_after(R"("shape": [4, 8])", R"("shape": [4611686018427387904, 8])"),
              HasSubstr("tensors[0]: has an impossible shape"));
  EXPECT_THAT(message_after(R"("shape": [4, 8])", R"("shape": [-4, 8])"), HasSubstr("shape[0]"));
  EXPECT_THAT(
      message_after(R"("dtype": "F32", "shape": [4, 8])", R"("dtype": "F16", "shape": [4, 8])"),
      HasSubstr("parameters must be F32"));
  EXPECT_THAT(message_after(R"("requires_grad": true)", R"("requires_grad": false)"),
              HasSubstr("no parameter has requires_grad"));
  EXPECT_THAT(message_after(R"("head.weight": "fc.weight")", R"("head.weight": "fc.w")"),
              HasSubstr("tied.head.weight: is tied to fc.w, which is unknown"));
  EXPECT_THAT(message_after(R"("kind": "buffer")", R"("kind": "module")"),
              HasSubstr("unknown kind module"));
}

TEST(GraphFile, HasLeastLengthsOfSequences) {
  const auto with = [](const std::string& min_steps) {
    std::string text = test::graph_text();
    return parse_graph_file(text.insert(1, "\"min_steps\": " + min_steps + ", "), "m/graph.json");
  };
  EXPECT_TRUE(parse_graph_file(test::graph_text(), "m/graph.json")->min_steps.empty());
  const auto file = with("[2, 0]");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_THAT(file->min_steps, ElementsAre(2, 0));
  EXPECT_THAT(with("[2]").status().message(),
              HasSubstr("min_steps: must have a number for each input of train"));
  EXPECT_THAT(with("[9, 0]").status().message(),
              HasSubstr("min_steps[0]: must be a number from 0 to 8"));
  EXPECT_THAT(with("[2, 1]").status().message(),
              HasSubstr("min_steps[1]: must be a number from 0 to 0"));
}

// A step: train and eval get fields by name and return a metric, too.
TEST(GraphFile, HasFieldsAndMetricsOfStep) {
  const auto step = [](const std::string& fields, const std::string& metrics) {
    std::string text = test::graph_text();
    const std::string inputs = R"("num_inputs": 1)", outputs = R"({"v": 3}], "updates")";
    text.insert(text.find(inputs), R"("fields": )" + fields + R"(, "metrics": )" + metrics + ", ");
    for (size_t at = text.find(outputs); at != std::string::npos; at = text.find(outputs, at + 30))
      text.insert(at, R"({"v": 3}, {"v": 4}, )");
    return parse_graph_file(text, "graph.json");
  };
  const std::string fields = R"(["input", "label"])", metrics = R"([{"name": "accuracy"}])";
  const auto file = step(fields, metrics);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_THAT(file->fields, ElementsAre("input", "label"));
  EXPECT_THAT(file->metrics, ElementsAre("accuracy"));
  const auto error = [&](const std::string& of_fields, const std::string& of_metrics) {
    return step(of_fields, of_metrics).status().message();
  };
  EXPECT_THAT(error(R"(["input"])", metrics), HasSubstr("must have an input for each of fields"));
  EXPECT_THAT(error(R"(["a", "a"])", metrics), HasSubstr("fields[1]: occurs twice"));
  EXPECT_THAT(error("[]", metrics), HasSubstr("fields: must be some names"));
  EXPECT_THAT(error(R"([1])", metrics), HasSubstr("fields[0]: must be a text"));
  EXPECT_THAT(error(fields, "[]"), HasSubstr("and those of each metric"));
  EXPECT_THAT(error(fields, R"([{"name": "a"}, {"name": "a"}])"), HasSubstr("occurs twice"));
  std::string many;
  for (int i = 0; i < 33; ++i) many += R"(, {"name": "m)" + std::to_string(i) + "\"}";
  EXPECT_THAT(error(fields, "[" + many.substr(2) + "]"), HasSubstr("at most 32 metrics"));
}

TEST(GraphFile, RejectsProgramsThatDoNotBelongTogether) {
  EXPECT_THAT(message_after(R"("outputs": [{"v": 16}, {"v": 3}])", R"("outputs": [])"),
              HasSubstr("must return the loss"));
  EXPECT_THAT(message_after(R"("shape": [null, 8]})", R"("shape": [null, 9]})"),
              HasSubstr("other inputs than each other"));
  EXPECT_THAT(message_after(R"("shape": [null, 8]})", R"("shape": [4, 8]})"),
              HasSubstr("has no batch dimension"));
  EXPECT_THAT(message_after(R"("num_inputs": 1)", R"("num_inputs": 2)"),
              HasSubstr("other inputs than each other"));
  EXPECT_THAT(message_after(R"("gradients": {"fc.weight")", R"("gradients": {"fc.w")"),
              HasSubstr("self_test.gradients: has no fc.weight"));
  EXPECT_THAT(message_after(R"("bound": 1e-6)", R"("bound": -1)"), HasSubstr("negative bound"));
  EXPECT_THAT(message_after(R"("min": 1, "max": null)", R"("min": 2, "max": 1)"),
              HasSubstr("batch.max: must be a number from 2"));
}

}  // namespace
}  // namespace stoker::graph
