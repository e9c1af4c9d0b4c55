// PyTorch and stoker read each other's files. STOKER_PYTHON is a Python with torch installed.
#include <algorithm>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/hash.h"
#include "shared/checkpoint/export_tensors.h"
#include "shared/checkpoint/sharded_tensors.h"
#include "shared/checkpoint/torch_file.h"
#include "tests/shared/checkpoint/checkpoint_fixture.h"
#include "tests/support/python_script.h"
#include "tests/support/temporary_directory.h"

namespace stoker::checkpoint {
namespace {

using ::testing::HasSubstr;

// In the format of the script's output.
std::string lines_of(const TensorSource& file, const std::string& prefix = "") {
  std::vector<std::string> lines;
  for (const TensorSpec& spec : file.tensors()) {
    std::string bytes(spec.bytes(), '\0');
    const Status status = file.read(spec.name, std::as_writable_bytes(std::span(bytes)));
    EXPECT_TRUE(status.ok()) << status.to_string();
    lines.push_back(prefix + to_string(spec) + " " + sha256_hex(bytes));
  }
  std::ranges::sort(lines);
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

class TorchPythonTest : public ::testing::Test {
 protected:
  std::unique_ptr<SafetensorsFile> write_with_stoker() {
    EXPECT_TRUE(write_safetensors(default_file_system(), scratch_.path(), "ours",
                                  views_of(one_of_each_dtype()), {{"format", "pt"}})
                    .ok());
    auto file = SafetensorsFile::open(scratch_ / "ours");
    EXPECT_TRUE(file.ok()) << file.status().to_string();
    return *std::move(file);
  }
  std::string export_with_stoker(const std::vector<ExportPart>& parts) {
    auto out = NewFile::create(default_file_system(), scratch_ / "ours.pt");
    EXPECT_TRUE(out.ok()) << out.status().to_string();
    EXPECT_TRUE(export_torch(parts, 1200, *out, {}).ok());
    EXPECT_TRUE(out->commit().ok());
    return scratch_ / "ours.pt";
  }

  test::TemporaryDirectory scratch_;
};

#define RUN_OR_SKIP(answer, ...)                                                      \
  const auto answer = test::try_run_python(STOKER_TORCH_PY, __VA_ARGS__);             \
  if (!answer) GTEST_SKIP() << "set STOKER_PYTHON to a Python that can import torch"; \
  ASSERT_EQ(answer->code, 0) << answer->err

TEST_F(TorchPythonTest, LoadsExportedModelWithWeightsOnly) {
  const auto file = write_with_stoker();
  const std::string path = export_with_stoker({{"model", file.get()}});
  RUN_OR_SKIP(answer, {"read", path});
  EXPECT_EQ(answer->out, lines_of(*file));
}

TEST_F(TorchPythonTest, LoadsAllComponentsOfExportedCheckpoint) {
  const auto file = write_with_stoker();
  const std::string path = export_with_stoker({{"model", file.get()}, {"optimizer", file.get()}});
  RUN_OR_SKIP(answer, {"read", path});
  EXPECT_EQ(answer->out,
            lines_of(*file, "model.") + lines_of(*file, "optimizer.") + "step = 1200\n");
}

// With the optimizer state in two files, of which each has a part of a matrix.
TEST_F(TorchPythonTest, LoadsStateDictOfModelAndOptimizerWithDistributedCheckpoint) {
  std::vector<OwnedTensor> model, first, second;
  std::string expected;
  TensorRanges first_ranges, second_ranges;
  unsigned seed = 0;
  const auto add_line = [&expected](const std::string& name, const OwnedTensor& tensor) {
    TensorSpec spec = tensor.spec;
    spec.name = name;
    expected +=
        to_string(spec) + " " +
        sha256_hex({reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size()}) +
        "\n";
  };
  using Shape = std::vector<int64_t>;
  for (const auto& [name, shape] :
       {std::pair("0.bias", Shape{4}), std::pair("0.weight", Shape{4, 3}),
        std::pair("2.bias", Shape{2}), std::pair("2.weight", Shape{2, 4})}) {
    model.push_back(make_tensor(name, DType::kF32, shape, ++seed));
    add_line(std::string("model.") + name, model.back());
  }
  for (const OwnedTensor& weight : model) {
    for (const std::string kind : {"exp_avg", "exp_avg_sq", "step"}) {
      const std::string key = kind + "." + weight.spec.name;
      OwnedTensor tensor =
          make_tensor(key, DType::kF32, kind == "step" ? Shape{} : weight.spec.shape, ++seed);
      add_line("optim.state." + weight.spec.name + "." + kind, tensor);
      if (weight.spec.name == "0.weight" && kind != "step") {
        constexpr int kCut = 5;  // of 12 elements
        first_ranges[key] = {tensor.spec.shape, 0};
        second_ranges[key] = {tensor.spec.shape, kCut};
        second.push_back({{key, DType::kF32, {12 - kCut}},
                          {tensor.bytes.begin() + kCut * 4, tensor.bytes.end()}});
        tensor.spec.shape = {kCut};
        tensor.bytes.resize(kCut * 4);
      }
      (weight.spec.name < "1" ? first : second).push_back(std::move(tensor));
    }
  }
  std::vector<std::unique_ptr<SafetensorsFile>> parts;
  const auto write = [&](const std::string& name, const std::vector<OwnedTensor>& tensors,
                         const TensorRanges& ranges) {
    EXPECT_TRUE(write_safetensors(default_file_system(), scratch_.path(), name, views_of(tensors),
                                  {{kRangesKey, format_ranges(ranges)}})
                    .ok());
    return *SafetensorsFile::open(scratch_ / name);
  };
  const auto weights = write("weights", model, {});
  parts.push_back(write("part-1", first, first_ranges));
  parts.push_back(write("part-2", second, second_ranges));
  const auto optimizer = ShardedTensors::create(std::move(parts));
  ASSERT_TRUE(optimizer.ok()) << optimizer.status().to_string();

  std::filesystem::create_directory(scratch_ / "dcp");
  auto out = NewFile::create(default_file_system(), scratch_ / "dcp" + "/model.safetensors");
  ASSERT_TRUE(out.ok());
  const ExportPart exported[] = {{"model", weights.get()}, {"optimizer", optimizer->get()}};
  ASSERT_TRUE(export_state_dict(exported, *out, {}).ok());
  ASSERT_TRUE(out->commit().ok());
  RUN_OR_SKIP(answer, {"load_dcp", scratch_ / "dcp"});
  EXPECT_EQ(answer->out, expected);
}

// All dtypes, views and shared storages, states of a module and an optimizer, and a file without
// checksums.
TEST_F(TorchPythonTest, WritesFilesReadIdenticallyByStoker) {
  RUN_OR_SKIP(answer, {"write", scratch_.path()});
  int compared = 0;
  for (const auto& entry : std::filesystem::directory_iterator(scratch_.path())) {
    const std::string path = entry.path().string();
    const auto expected = read_file(path + ".lines", 1 << 20);
    if (!expected.ok()) continue;
    SCOPED_TRACE(path);
    const auto file = TorchFile::open(path);
    ASSERT_TRUE(file.ok()) << file.status().to_string();
    EXPECT_EQ(lines_of(**file), *expected);
    ++compared;
  }
  EXPECT_EQ(compared, 8);
}

TEST_F(TorchPythonTest, WritesUnsupportedFilesRejectedWithReason) {
  RUN_OR_SKIP(answer, {"write", scratch_.path()});
  for (const auto& [name, why] :
       {std::pair("refused_legacy.pt", "before 1.6"),
        std::pair("refused_module.pt", "contains torch.nn.modules.container.Sequential"),
        std::pair("refused_complex.pt", "contains torch.ComplexFloatStorage"),
        std::pair("refused_protocol.pt", "instruction 0x95"),
        std::pair("refused_sparse.pt", "contains torch._utils._rebuild_sparse_tensor")}) {
    const auto file = TorchFile::open(scratch_ / name);
    ASSERT_EQ(file.status().code(), StatusCode::kCorrupt) << name;
    EXPECT_THAT(file.status().message(), HasSubstr(why));
  }
}

}  // namespace
}  // namespace stoker::checkpoint
