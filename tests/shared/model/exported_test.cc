// Exported modules as models, compared bit by bit with what eager PyTorch computed. StokerExport.Zoo (tests/python) exports them.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/max.h>
#include <ATen/ops/norm.h>
#include <ATen/ops/randn.h>
#include <ATen/record_function.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include "shared/checkpoint/safetensors.h"
#include "shared/graph/graph_file.h"
#include "shared/model/autocast.h"
#include "shared/model/data_compatibility.h"
#include "shared/model/model.h"
#include "shared/model/model_factories.h"
#include "shared/model/model_file.h"
#include "shared/model/out_of_vocab.h"
#include "shared/model/torch_dtype.h"
#include "tests/support/temporary_directory.h"

namespace stoker::model {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kZoo = STOKER_EXPORTED;
constexpr double kLr = 0.05;  // export_zoo.py

class OneThread {
 public:
  OneThread() : was_(at::get_num_threads()) { at::set_num_threads(1); }
  ~OneThread() { at::set_num_threads(was_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  const int was_;
};

using Named = std::map<std::string, at::Tensor>;

Named read_tensors(const std::string& path) {
  const auto file = checkpoint::SafetensorsFile::open(path);
  EXPECT_TRUE(file.ok()) << file.status().message();
  Named tensors;
  for (const TensorSpec& spec : (*file)->tensors()) {
    at::Tensor tensor = at::empty(spec.shape, to_scalar_type(spec.dtype));
    EXPECT_TRUE((*file)
                    ->read(spec.name, {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()})
                    .ok());
    tensors.emplace(spec.name, tensor);
  }
  return tensors;
}

// A batch of the reference: the tensors PREFIX0, PREFIX1, …, of which the first is the input.
std::vector<at::Tensor> numbered(const Named& tensors, const std::string& prefix) {
  std::vector<at::Tensor> found;
  for (auto each = tensors.find(prefix + "0"); each != tensors.end();
       each = tensors.find(prefix + std::to_string(found.size())))
    found.push_back(each->second);
  return found;
}
// Its lengths, if it has padded sequences.
at::Tensor length_of(const Named& tensors, const std::string& prefix) {
  const auto found = tensors.find(prefix + "length");
  return found == tensors.end() ? at::Tensor() : found->second;
}
// As in a dataset.
NamedTensors fields_of(const std::vector<at::Tensor>& batch, const at::Tensor& length = {}) {
  NamedTensors fields{{batch[0].scalar_type() == at::kLong ? "tokens" : "input", batch[0]}};
  if (length.defined()) fields.emplace_back("length", length);
  for (size_t i = 1; i < batch.size(); ++i) {
    const std::string role = batch[i].is_floating_point() ? "target"
                             : batch[i].dim() == 1        ? "label"
                                                          : "labels";
    const bool is_first =
        std::ranges::find(fields, role, &NamedTensors::value_type::first) == fields.end();
    fields.emplace_back(is_first ? role : role + std::to_string(i), batch[i]);
  }
  return fields;
}
at::Tensor loss_of_batch(Model& model, const Named& tensors, const std::string& prefix) {
  const auto batch = numbered(tensors, prefix);
  const at::Tensor length = length_of(tensors, prefix);
  return model.step(fields_of(batch, length)).loss.mean;
}

config::ModelConfig config_of(const std::string& folder) {
  return {.arch = config::ExportedConfig{.path = folder}};
}

// The samples of a dataset that has the batches of the reference.
Samples samples_for(const std::vector<at::Tensor>& batch, bool has_length = false) {
  Samples samples;
  for (const auto& [name, tensor] : fields_of(batch)) {
    samples.push_back(to_tensor_spec(name, tensor));
    samples.back().shape.erase(samples.back().shape.begin());
    if (has_length && samples.size() == 1) samples.push_back({"length", DType::kI64, {}});
  }
  return samples;
}

// Differences of tensors of one module, for a message.
class Differences {
 public:
  void compare(const std::string& name, const at::Tensor& tensor, const at::Tensor& expected) {
    ++compared_;
    const at::Tensor found = tensor.detach().contiguous();
    if (found.sizes() == expected.sizes() && found.scalar_type() == expected.scalar_type() &&
        std::memcmp(found.data_ptr(), expected.data_ptr(), found.nbytes()) == 0)
      return;
    text_ += (text_.empty() ? "" : ", ") + name;
  }
  void add(const std::string& what) { text_ += (text_.empty() ? "" : ", ") + what; }
  const std::string& text() const { return text_; }
  int compared() const { return compared_; }

 private:
  std::string text_;
  int compared_ = 0;
};

void train_as_in_python(Model& model, const Named& expected, Differences& differences) {
  model.train();
  for (int step = 0;; ++step) {
    const std::string number = std::to_string(step);
    const std::string prefix = "batch." + number + ".";
    if (!expected.contains(prefix + "0")) break;
    torch::manual_seed(1000 + static_cast<uint64_t>(step));
    model.zero_grad();
    const at::Tensor loss = loss_of_batch(model, expected, prefix);
    loss.backward();
    differences.compare("loss " + number, loss, expected.at("loss." + number));
    const at::NoGradGuard no_grad;
    for (const auto& item : model.named_parameters()) {
      const at::Tensor& gradient = item.value().grad();
      const auto found = expected.find("gradient." + item.key());
      if (step == 0 && gradient.defined() != (found != expected.end()))
        differences.add(item.key() + (gradient.defined() ? " has a gradient" : " has no gradient"));
      else if (step == 0 && gradient.defined())
        differences.compare("gradient of " + item.key(), gradient, found->second);
      if (item.value().requires_grad() && gradient.defined())
        at::Tensor(item.value()).add_(gradient, -kLr);
    }
  }
  for (const auto& [name, tensor] : named_tensors(model))
    differences.compare(name, tensor, expected.at("after." + name));
}

void evaluate_as_in_python(Model& model, const Named& expected, Differences& differences) {
  model.eval();
  const at::NoGradGuard no_grad;
  const std::string prefix = "eval.batch.";
  const at::Tensor& input = expected.at(prefix + "0");
  const at::Tensor length = length_of(expected, prefix);
  torch::manual_seed(2000);
  differences.compare("output",
                      length.defined() ? model.forward_padded(input, length) : model.forward(input),
                      expected.at("eval.output"));
  torch::manual_seed(2000);
  differences.compare("loss in eval mode", loss_of_batch(model, expected, prefix),
                      expected.at("eval.loss"));
}

TEST(ExportedZoo, ComputesBitsOfPython) {
  std::ifstream names(std::string(kZoo) + "/names");
  if (!names) GTEST_SKIP() << "there are no modules: StokerExport.Zoo needs a Python with PyTorch";
  const OneThread one_thread;
  int modules = 0, tensors = 0;
  for (std::string name; std::getline(names, name); ++modules) {
    const std::string folder = std::string(kZoo) + "/" + name;
    const Named expected = read_tensors(folder + ".safetensors");
    const std::string prefix = "batch.0.";
    const auto model = make_model(
        config_of(folder),
        samples_for(numbered(expected, prefix), length_of(expected, prefix).defined()), 0);
    ASSERT_TRUE(model.ok()) << name << ": " << model.status().message();
    const Status tested = (*model)->prepare_training({}, at::kCPU);
    EXPECT_TRUE(tested.ok()) << name << ": " << tested.message();
    Differences differences;
    try {
      train_as_in_python(**model, expected, differences);
      evaluate_as_in_python(**model, expected, differences);
    } catch (const c10::Error& error) {
      differences.add(error.what_without_backtrace());
    }
    EXPECT_EQ(differences.text(), "") << name;
    tensors += differences.compared();
  }
  EXPECT_GE(modules, std::getenv("STOKER_PARITY") != nullptr ? 220 : 60) << "zoo.py";
  std::cout << modules << " modules, " << tensors << " tensors compared\n";
}

// ---- One module

class ExportedModelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(std::string(kZoo) + "/names"))
      GTEST_SKIP() << "there are no modules: StokerExport.Zoo needs a Python with PyTorch";
  }
  static ModelPtr load(const std::string& name) {
    const std::string folder = std::string(kZoo) + "/" + name;
    const auto model = make_model(config_of(folder), samples_of(name), 0);
    EXPECT_TRUE(model.ok()) << model.status().message();
    return model.ok() ? *model : nullptr;
  }
  static std::vector<at::Tensor> batch_of(const std::string& name) {
    return numbered(read_tensors(std::string(kZoo) + "/" + name + ".safetensors"), "batch.0.");
  }
  static Samples samples_of(const std::string& name) { return samples_for(batch_of(name)); }
  static at::Tensor loss_of(Model& model, const std::vector<at::Tensor>& batch, uint64_t seed) {
    torch::manual_seed(seed);
    return model.step(fields_of(batch)).loss.mean;
  }
  std::string copy_of(const std::string& name) {
    const std::string copy = folder_ / (name + std::to_string(copies_++));
    fs::copy(std::string(kZoo) + "/" + name, copy);
    return copy;
  }
  // Of loading, or of the preparation of training; one line that names the setting.
  static std::string error_of(const std::string& name, const std::string& folder,
                              const config::TrainConfig& train = {}) {
    const auto model = make_model(config_of(folder), samples_of(name), 0);
    const Status status = model.ok() ? (*model)->prepare_training(train, at::kCPU) : model.status();
    if (status.ok()) return "no error";
    EXPECT_THAT(status.message(), AllOf(Not(HasSubstr("\n")), HasSubstr("model.path")));
    return status.message();
  }
  std::string error_after(const std::string& name, const std::string& file, const std::string& from,
                          const std::string& to) {
    const std::string copy = copy_of(name);
    const std::string path = copy + "/" + file;
    std::ifstream in(path, std::ios::binary);
    std::string text{std::istreambuf_iterator<char>(in), {}};
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    std::ofstream(path, std::ios::binary) << text.replace(at, from.size(), to);
    return error_of(name, copy);
  }

  const test::TemporaryDirectory folder_;
  int copies_ = 0;
};

at::Tensor parameter(Model& model, const std::string& name) {
  return *model.named_parameters().find(name);
}

TEST_F(ExportedModelTest, HasNamesOfPython) {
  const ModelPtr model = load("gpt");
  const auto names = named_tensors(*model);
  EXPECT_TRUE(model->named_parameters().contains("tok.weight"));
  EXPECT_TRUE(model->named_parameters().contains("blocks.1.mlp.0.bias"));
  EXPECT_FALSE(model->named_parameters().contains("head.weight")) << "is tok.weight";
  EXPECT_FALSE(model->named_buffers().contains("positions")) << "is not in the state_dict";
  EXPECT_EQ(model->tied_parameters(),
            (std::map<std::string, std::string>{{"head.weight", "tok.weight"}}));
  EXPECT_EQ(model->forward(batch_of("gpt")[0]).size(2), 64) << "logits, not features";
}

TEST_F(ExportedModelTest, SelfTestLeavesNoTrace) {
  const ModelPtr model = load("buffers");
  torch::manual_seed(5);
  const at::Tensor expected = at::randn({3});
  torch::manual_seed(5);
  ASSERT_TRUE(model->prepare_training({}, at::kCPU).ok());
  EXPECT_TRUE(at::equal(at::randn({3}), expected)) << "the generator";
  EXPECT_EQ((*model->named_buffers().find("inner.steps")).item<int64_t>(), 0);
  EXPECT_FALSE(parameter(*model, "inner.linear.weight").grad().defined());
}

TEST_F(ExportedModelTest, AccumulatesScaledGradients) {
  const ModelPtr model = load("resnet");
  const auto batch = batch_of("resnet");
  model->train();
  loss_of(*model, batch, 3).backward();
  const at::Tensor once = parameter(*model, "7.weight").grad().clone();
  (loss_of(*model, batch, 3) * 0.5).backward();
  EXPECT_TRUE(at::equal(parameter(*model, "7.weight").grad(), once * 1.5));
}

TEST_F(ExportedModelTest, FrozenParametersGetNoGradient) {
  const ModelPtr model = load("gpt");
  ASSERT_TRUE(freeze(*model, {"blocks.0.*"}).ok());
  loss_of(*model, batch_of("gpt"), 3).backward();
  EXPECT_FALSE(parameter(*model, "blocks.0.qkv.weight").grad().defined());
  EXPECT_TRUE(parameter(*model, "blocks.1.qkv.weight").grad().defined());
}

TEST_F(ExportedModelTest, DrawsRandomNumbersFromGenerator) {
  const ModelPtr model = load("gpt");
  const auto batch = batch_of("gpt");
  EXPECT_TRUE(at::equal(loss_of(*model, batch, 3), loss_of(*model, batch, 3)));
  EXPECT_FALSE(at::equal(loss_of(*model, batch, 3), loss_of(*model, batch, 4)));
}

TEST_F(ExportedModelTest, CountsValuesOfItsLoss) {
  const ModelPtr model = load("sum_and_count");
  const auto batch = batch_of("sum_and_count");
  const LossTerm loss = model->step(fields_of(batch)).loss;
  ASSERT_TRUE(loss.maybe_count.defined());
  EXPECT_EQ(loss.maybe_count.item<double>(), batch[1].ne(-100).sum().item<double>());
  EXPECT_GE(model->counts_per_sample(), batch[1].size(1));
  const LossTerm empty =
      model->step(fields_of({batch[0], at::full(batch[1].sizes(), -100, at::kLong)})).loss;
  EXPECT_EQ(empty.maybe_count.item<double>(), 0);
  EXPECT_EQ(empty.mean.item<double>(), 0);
  empty.mean.backward();
  for (const at::Tensor& parameter : model->parameters())
    EXPECT_EQ(parameter.grad().abs().sum().item<double>(), 0);
  EXPECT_FALSE(load("relu")->step(fields_of(batch_of("relu"))).loss.maybe_count.defined());
  EXPECT_EQ(load("relu")->counts_per_sample(), 0);
}

// A graph has operators as Python calls them, so that autocast chooses their precision when they run.
TEST_F(ExportedModelTest, RunsUnderAutocast) {
  const ModelPtr model = load("resnet");
  const auto batch = batch_of("resnet");
  const float full = loss_of(*model, batch, 3).item<float>();
  float low = 0;
  {
    const Autocast autocast(at::kBFloat16, at::kCPU);
    const at::Tensor loss = loss_of(*model, batch, 3);
    EXPECT_EQ(loss.scalar_type(), at::kFloat);
    loss.backward();
    low = loss.item<float>();
    EXPECT_EQ(model->forward(batch[0]).scalar_type(), at::kBFloat16);
  }
  EXPECT_NE(full, low);
  EXPECT_NEAR(full, low, 0.05 * std::abs(full));
}

// Calls of an operator in a step, on this thread.
int calls_in_step(Model& model, const std::vector<at::Tensor>& batch, const char* name) {
  static int calls;
  static const char* counted;
  calls = 0;
  counted = name;
  const auto handle =
      at::addGlobalCallback(at::RecordFunctionCallback([](const at::RecordFunction& function)
                                                           -> std::unique_ptr<at::ObserverContext> {
                              if (std::string_view(function.name()) == counted) ++calls;
                              return nullptr;
                            }).scopes({at::RecordScope::FUNCTION}));
  torch::manual_seed(1);
  model.step(fields_of(batch)).loss.mean.backward();
  at::removeCallback(handle);
  return calls;
}

// As torch.utils.checkpoint in Python; ComputesBitsOfPython compares the gradients.
TEST_F(ExportedModelTest, RecomputesCheckpointedModules) {
  const auto batch = batch_of("gpt");
  EXPECT_EQ(calls_in_step(*load("gpt"), batch, "aten::layer_norm"), 5);
  EXPECT_EQ(calls_in_step(*load("gpt_recomputed"), batch, "aten::layer_norm"), 5 + 4)
      << "two of each block again";
}

// Of three tensors that depend on each other; ComputesBitsOfPython compares the gradients.
TEST_F(ExportedModelTest, RecomputesModuleOfSeveralTensors) {
  EXPECT_EQ(
      calls_in_step(*load("recomputed_features"), batch_of("recomputed_features"), "aten::linear"),
      4 + 1);
}

// max_norm of an embedding writes to its parameter, which starts longer than that.
TEST_F(ExportedModelTest, SelfTestLeavesParametersThatForwardChanges) {
  const ModelPtr model = load("embedding_max_norm");
  ASSERT_TRUE(model->prepare_training({}, at::kCPU).ok());
  const at::Tensor initial =
      read_tensors(std::string(kZoo) + "/embedding_max_norm/model.safetensors").at("embed.weight");
  EXPECT_GT(initial.norm(2, 1).max().item<double>(), 1.5);
  EXPECT_TRUE(at::equal(parameter(*model, "embed.weight").detach(), initial));
}

TEST_F(ExportedModelTest, KeepsClassesOfShorterSequences) {
  const ModelPtr model = load("embedding_max_norm");
  model->eval();
  const at::NoGradGuard no_grad;
  const at::Tensor tokens = batch_of("embedding_max_norm")[0];
  EXPECT_EQ(tokens.size(1), model->forward(tokens).size(1)) << "as many classes as steps";
  at::Tensor extended = tokens.clone();
  extended.narrow(1, 3, 1).zero_();
  EXPECT_TRUE(at::equal(model->forward(tokens.narrow(1, 0, 3)), model->forward(extended)));
  const ModelPtr gpt = load("gpt");
  EXPECT_EQ(gpt->forward(batch_of("gpt")[0].narrow(1, 0, 5)).size(1), 5) << "logits of each step";
}

// ComputesBitsOfPython compares those of other lengths.
TEST_F(ExportedModelTest, LeavesLengthOfBatches) {
  const ModelPtr gpt = load("gpt_of_any_length");
  const auto batch = batch_of("gpt_of_any_length");
  const auto error = [&](int64_t steps, int64_t of_targets) -> std::string {
    try {
      (void)gpt->step(fields_of({batch[0].narrow(1, 0, steps).contiguous(),
                                 batch[1].narrow(1, 0, of_targets).contiguous()}));
    } catch (const c10::Error& thrown) {
      return thrown.what_without_backtrace();
    }
    return "no error";
  };
  EXPECT_EQ(error(16, 16), "no error");
  EXPECT_EQ(error(1, 1), "no error");
  gpt->eval();
  const at::NoGradGuard no_grad;
  const at::Tensor tokens = batch[0].narrow(1, 0, 5).contiguous();
  const auto handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback(
          [](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
            if (std::string_view(function.name()) == "aten::layer_norm") {
              EXPECT_EQ(function.inputs()[0].toTensor().size(1), 5);
            }
            return nullptr;
          })
          .needsInputs(true)
          .scopes({at::RecordScope::FUNCTION}));
  EXPECT_EQ(gpt->forward(tokens).size(1), 5);
  at::removeCallback(handle);
  const at::Tensor longer = at::full({2, 17}, 1, at::kLong);
  EXPECT_THROW((void)gpt->forward(longer), c10::Error);
}

// LibTorch would read the probabilities of a class that there is not.
TEST_F(ExportedModelTest, RejectsTargetsThatCtcLossWouldReadBeyond) {
  const ModelPtr model = load("loss_ctc");
  const auto batch = batch_of("loss_ctc");
  const auto error = [&](int64_t label) -> std::string {
    at::Tensor targets = at::full({6, 3}, -1, at::kLong);
    targets.select(1, 0).fill_(1);
    targets[5][0] = label;
    try {
      (void)model->step(fields_of({batch[0], targets}));
    } catch (const c10::Error& thrown) {
      return thrown.what_without_backtrace();
    }
    return "no error";
  };
  EXPECT_EQ(error(4), "no error") << "what is behind the lengths does not matter";
  EXPECT_THAT(error(5), HasSubstr("a target is negative or at least 5, the number of classes"));
}

// torch.export writes cudnn_enabled = false, with which a GPU would use other kernels.
TEST_F(ExportedModelTest, LeavesCudnnToThisProcess) {
  static bool is_enabled;
  is_enabled = false;
  const auto handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback(
          [](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
            if (std::string_view(function.name()) == "aten::batch_norm")
              is_enabled = function.inputs().back().toBool();
            return nullptr;
          })
          .needsInputs(true)
          .scopes({at::RecordScope::FUNCTION}));
  std::ifstream in(std::string(kZoo) + "/batch_norm1d/graph.json");
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  EXPECT_THAT(text, HasSubstr("bool cudnn_enabled) -> Tensor"));
  loss_of(*load("batch_norm1d"), batch_of("batch_norm1d"), 3);
  at::removeCallback(handle);
  EXPECT_TRUE(is_enabled);
}

TEST_F(ExportedModelTest, RejectsBatchesThatItDoesNotTake) {
  const ModelPtr model = load("relu");
  const auto error = [&](const at::Tensor& input, const at::Tensor& target) -> std::string {
    try {
      (void)model->step(fields_of({input, target}));
    } catch (const c10::Error& thrown) {
      return thrown.what_without_backtrace();
    }
    return "no error";
  };
  const at::Tensor input = at::randn({4, 12}), target = at::full({4}, 2, at::kLong);
  EXPECT_EQ(error(input, target), "no error");
  EXPECT_THAT(error(input.to(at::kDouble), target), HasSubstr("exported for F32 [4, 12]"));
  EXPECT_THAT(error(input.narrow(1, 0, 11), target), HasSubstr("the batch has Float [4, 11]"));
  EXPECT_THAT(error(input, target.narrow(0, 0, 3)), HasSubstr("exported for I64 [4]"));
  EXPECT_THAT(error(input, target + 100), HasSubstr("cross_entropy_loss"));
}

TEST_F(ExportedModelTest, RejectsBatchSizeOfTheEvaluationBeforeTraining) {
  const std::string copy = copy_of("relu");
  std::ifstream in(copy + "/graph.json");
  std::string text{std::istreambuf_iterator<char>(in), {}};
  const std::string any = R"("batch": {"min": 1, "max": null})";
  const size_t at = text.find(any);
  ASSERT_NE(at, std::string::npos);
  std::ofstream(copy + "/graph.json")
      << text.replace(at, any.size(), R"("batch": {"min": 2, "max": 8})");
  const auto error = [&](int64_t batch_size, std::vector<std::string> datasets) {
    config::EvalConfig eval;
    eval.batch_size = batch_size;
    eval.datasets = std::move(datasets);
    return check_eval_batch_size(config_of(copy), eval).message();
  };
  EXPECT_EQ(error(2, {"val"}), "");
  EXPECT_EQ(error(8, {"val"}), "");
  EXPECT_EQ(error(9, {}), "") << "nothing is evaluated";
  for (const int64_t batch_size : {1, 9})
    EXPECT_EQ(
        error(batch_size, {"val"}),
        "model.path: " + copy +
            "/graph.json: takes batches of 2 samples or more, at most 8, eval.batch_size is " +
            std::to_string(batch_size));
  config::TrainConfig train;
  train.micro_batch_size = 9;
  EXPECT_THAT(error_of("relu", copy, train), HasSubstr("at most 8, train.micro_batch_size is 9"));
  config::EvalConfig eval;
  eval.batch_size = 4;
  const auto last_error = [&](uint64_t size) {
    return check_last_eval_batch(config_of(copy), eval, "val", size).message();
  };
  for (const uint64_t size : {6, 7, 8}) EXPECT_EQ(last_error(size), "") << size;
  EXPECT_THAT(last_error(9), HasSubstr("at most 8, the last of 9 samples of data.val in batches of "
                                       "eval.batch_size has 1"));
  eval.max_samples = 8;
  EXPECT_EQ(last_error(9), "");
}

// Only lookups of the input: a target has another message.
TEST_F(ExportedModelTest, ReportsOutOfVocabTokensOfBatch) {
  const ModelPtr model = load("gpt");
  const auto batch = batch_of("gpt");
  at::Tensor tokens = batch[0].clone();
  tokens[1][2] = 64;  // the table has as many
  for (const bool is_training : {true, false}) {
    try {
      if (is_training)
        (void)model->step(fields_of({tokens, batch[1]}));
      else
        (void)model->forward(tokens);
      ADD_FAILURE() << "the table has 64 tokens";
    } catch (const OutOfVocabError& error) {
      EXPECT_THAT(error.what_without_backtrace(), HasSubstr(" to 64 (index out of range"));
    }
  }
  EXPECT_THROW((void)model->step(fields_of({batch[0], tokens})), c10::IndexError);
}

TEST_F(ExportedModelTest, RejectsOtherData) {
  const auto error = [](const Samples& sample) {
    const auto model = make_model(config_of(std::string(kZoo) + "/relu"), sample, 4);
    return model.ok() ? "no error" : model.status().message();
  };
  EXPECT_THAT(error({{"input", DType::kF32, {31}}, {"label", DType::kI64, {}}}),
              HasSubstr("with the input F32 [12] per sample; the data has F32 [31]"));
  EXPECT_THAT(error({{"input", DType::kF32, {12}}, {"target", DType::kF32, {1}}}),
              HasSubstr("with the targets I64 [] per sample; the data has F32 [1]"));
}

TEST_F(ExportedModelTest, RejectsChangedFiles) {
  EXPECT_EQ(error_of("relu", copy_of("relu")), "no error");
  EXPECT_THAT(error_after("relu", "model.safetensors", "F32", "I32"),
              HasSubstr("export the module again"));
  EXPECT_THAT(error_after("relu", "self_test.safetensors", "F32", "I32"),
              HasSubstr("export the module again"));
  EXPECT_THAT(error_after("relu", "graph.json", "aten::relu(Tensor self)",
                          "aten::relu(Tensor self, int a)"),
              AllOf(HasSubstr("operators.aten::relu"), HasSubstr("export the module again")));
  EXPECT_THAT(error_after("relu", "graph.json", "aten::relu(Tensor self)", "aten::relu(Tensor"),
              HasSubstr("is not a schema"));
  EXPECT_THAT(error_after("relu", "graph.json", R"("op": "aten::relu", "args": [{"v": )",
                          R"("op": "aten::relu", "args": [1, {"v": )"),
              HasSubstr("aten::relu in layer: gets too many arguments"));
  // LibTorch would read 6 norms of 4.
  EXPECT_THAT(error_after("weight_norm", "graph.json",
                          R"("op": "aten::_weight_norm", "args": [{"t": 2}, {"t": 1})",
                          R"("op": "aten::_weight_norm", "args": [{"t": 2}, {"t": 4})"),
              AllOf(HasSubstr("the norms have the shape [4]"), HasSubstr("_weight_norm")));
  const std::string copy = copy_of("relu");
  fs::remove(copy + "/model.safetensors");
  EXPECT_THAT(error_of("relu", copy), HasSubstr("model.safetensors"));
  EXPECT_THAT(error_of("relu", copy + "/graph.json"), HasSubstr("Not a directory"));
}

TEST_F(ExportedModelTest, RejectsFolderThatFailsItsSelfTest) {
  const auto error = [&](const std::string& name, const std::string& section) {
    const std::string digit = R"("norm": )";
    const std::string copy = copy_of(name);
    std::ifstream in(copy + "/graph.json");
    std::string text{std::istreambuf_iterator<char>(in), {}};
    const size_t at = text.find("\"" + section + "\": {", text.find("\"self_test\""));
    EXPECT_NE(at, std::string::npos) << section;
    // The SHA-256 of other bits, and a norm that is 1 larger in its first digit.
    const size_t sum = text.find("\"sha256\": \"", at) + 11;
    text[sum] = text[sum] == '0' ? '1' : '0';
    const size_t norm = text.find(digit, at) + digit.size();
    text.insert(norm, "9");
    std::ofstream(copy + "/graph.json") << text;
    return error_of(name, copy);
  };
  EXPECT_THAT(error("resnet", "loss"), HasSubstr("fails its self-test: the norm of the loss is"));
  EXPECT_THAT(error("resnet", "eval_loss"), HasSubstr("the norm of the loss in eval mode is"));
  EXPECT_THAT(error("resnet", "7.weight"), HasSubstr("the norm of the gradient of 7.weight is"));
  EXPECT_THAT(error("resnet", "1.running_mean"), HasSubstr("the buffer 1.running_mean is"));
}

// Another processor computes other bits: the bound that the exporter measured decides.
TEST_F(ExportedModelTest, AcceptsOtherRounding) {
  const std::string copy = copy_of("resnet");
  std::ifstream in(copy + "/graph.json");
  std::string text{std::istreambuf_iterator<char>(in), {}};
  const std::string key = R"("sha256": ")";
  for (size_t at = text.find(key); at != std::string::npos; at = text.find(key, at + 1))
    text.replace(at + key.size(), 4, "0123");
  std::ofstream(copy + "/graph.json") << text;
  EXPECT_EQ(error_of("resnet", copy), "no error");
}

TEST_F(ExportedModelTest, IsIdentifiedByItsGraph) {
  const auto digest = file_digest(config_of(copy_of("relu")));
  ASSERT_TRUE(digest.ok()) << digest.status().message();
  EXPECT_EQ(*digest, *file_digest(config_of(copy_of("relu"))));
  EXPECT_NE(*digest, *file_digest(config_of(copy_of("gelu"))));
}

}  // namespace
}  // namespace stoker::model
