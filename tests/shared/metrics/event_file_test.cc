#include "shared/metrics/event_file.h"

#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <limits>

#include <gtest/gtest.h>

#include "shared/metrics/tensorboard_messages.h"
#include "tests/shared/metrics/failing_files.h"
#include "tests/support/faulty_files.h"
#include "tests/support/temporary_directory.h"

namespace stoker::metrics {
namespace {

using namespace std::chrono_literals;

class EventFileTest : public ::testing::Test {
 protected:
  void SetUp() override { clock_.advance(std::chrono::hours(24 * 365 * 50)); }

  std::unique_ptr<EventFile> create(std::optional<uint64_t> after_step = {}) {
    auto file = EventFile::create(files_, clock_, directory_.path(), after_step);
    EXPECT_TRUE(file.ok()) << file.status().to_string();
    return file.ok() ? *std::move(file) : nullptr;
  }
  // What TensorBoard reads from the directory; empty if TensorBoard is not installed.
  std::string read_with_tensorboard() {
    const char* environment_python = std::getenv("STOKER_PYTHON");
    const std::string python = environment_python != nullptr && *environment_python != '\0'
                                   ? environment_python
                                   : "python3";
    const std::string command =
        python + " " STOKER_READ_EVENTS " " + directory_.path() + " 2>" + directory_ / "errors";
    std::FILE* pipe = ::popen(command.c_str(), "r");
    if (pipe == nullptr) return "";
    std::string output;
    char chunk[4096];
    for (size_t bytes_read = 0; (bytes_read = std::fread(chunk, 1, sizeof chunk, pipe)) > 0;)
      output.append(chunk, bytes_read);
    const int status = ::pclose(pipe);
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (code == 77 || code == 127) return "";
    EXPECT_EQ(code, 0) << *read_file(directory_ / "errors", 1 << 20);
    while (!output.empty() && output.back() == '\n') output.pop_back();
    return output;
  }

  const test::TemporaryDirectory directory_;
  FailingFileSystem files_;
  ManualClock clock_;
};

#define READ_WITH_TENSORBOARD_OR_SKIP(output)         \
  const std::string output = read_with_tensorboard(); \
  if (output.empty())                                 \
  GTEST_SKIP() << "no TensorBoard: set STOKER_PYTHON to a Python that can import tensorboard"

TEST_F(EventFileTest, KeepsNameOfNewFileAfterPowerCut) {
  test::FaultyFiles files(directory_.path());
  ASSERT_TRUE(EventFile::create(files, clock_, directory_.path(), {}).ok());
  const std::string after = directory_.path() + "-after";
  files.simulate_power_loss(files.operations().size(), test::Survival::kNothing, 1, after);
  EXPECT_FALSE(std::filesystem::is_empty(after));
  std::filesystem::remove_all(after);
}

TEST_F(EventFileTest, KeepsNameOfNewDirectoryAfterPowerCut) {
  test::FaultyFiles files(directory_.path());
  const std::string folder = "/tensorboard/eval/val";
  ASSERT_TRUE(make_directories(files, directory_ / "tensorboard").ok());
  ASSERT_TRUE(files.sync_directory(directory_.path()).ok());  // as stokerd does
  ASSERT_TRUE(EventFile::create(files, clock_, directory_.path() + folder, {}).ok());
  const std::string after = directory_.path() + "-after";
  files.simulate_power_loss(files.operations().size(), test::Survival::kNothing, 1, after);
  std::error_code error;
  EXPECT_FALSE(std::filesystem::is_empty(after + folder, error));
  EXPECT_FALSE(error) << error.message();
  std::filesystem::remove_all(after);
}

TEST_F(EventFileTest, IsCreatedInRelativeDirectory) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(directory_.path());
  const auto file = EventFile::create(files_, clock_, "demo/tensorboard", {});
  std::filesystem::current_path(before);
  EXPECT_TRUE(file.ok()) << file.status().to_string();
}

TEST_F(EventFileTest, WritesScalarsAndTextsReadableByTensorBoard) {
  auto file = create();
  file->add_scalar("loss", 10, 2.5);
  file->add_scalar("loss", 20, 1.25);
  file->add_scalar("train/lr", 10, std::numeric_limits<double>::quiet_NaN());
  file->add_scalar("bad \xff tag", 1, 1);
  file->add_text("sample", 20, "int main() {\n  \xff\n}");
  ASSERT_TRUE(file->flush().ok());
  READ_WITH_TENSORBOARD_OR_SKIP(output);
  EXPECT_EQ(
      output,
      R"({"page_scalars": {"bad \ufffd tag": [[1, 1.0]], "loss": [[10, 2.5], [20, 1.25]], "train/lr": [[10, "nan"]]}, )"
      R"("scalars": {"bad \ufffd tag": [[1, 1.0]], "loss": [[10, 2.5], [20, 1.25]], "train/lr": [[10, "nan"]]}, )"
      R"("texts": {"sample": [["text", 20, "int main() {\n  \ufffd\n}"]]}})");
}

TEST_F(EventFileTest, WritesOneCurveWithoutDuplicatesAfterResume) {
  {
    auto file = create(0);
    for (uint64_t step = 10; step <= 50; step += 10)
      file->add_scalar("loss", step, 100.0 + static_cast<double>(step));
  }
  auto file = create(30);  // the same second: the name must still sort after the first
  for (uint64_t step = 40; step <= 60; step += 10)
    file->add_scalar("loss", step, static_cast<double>(step));
  ASSERT_TRUE(file->flush().ok());
  READ_WITH_TENSORBOARD_OR_SKIP(output);
  constexpr std::string_view kCurve =
      R"([[10, 110.0], [20, 120.0], [30, 130.0], [40, 40.0], [50, 50.0], [60, 60.0]])";
  EXPECT_EQ(output, std::string(R"({"page_scalars": {"loss": )").append(kCurve) +
                        R"(}, "scalars": {"loss": )" + std::string(kCurve) + R"(}, "texts": {}})");
}

TEST_F(EventFileTest, ContinuesInNextFileAfterKillInMidRecord) {
  std::string first;
  {
    auto file = create(0);
    file->add_scalar("loss", 1, 1);
    file->add_scalar("loss", 2, 2);
    first = file->path();
  }
  std::filesystem::resize_file(first, std::filesystem::file_size(first) - 7);
  auto file = create(1);
  file->add_scalar("loss", 2, 22);
  ASSERT_TRUE(file->flush().ok());
  READ_WITH_TENSORBOARD_OR_SKIP(output);
  EXPECT_NE(output.find(R"("scalars": {"loss": [[1, 1.0], [2, 22.0]]})"), std::string::npos)
      << output;
}

TEST_F(EventFileTest, ExtendsCurveWithoutPurgeStep) {
  {
    auto file = create();
    file->add_scalar("loss", 100, 1);
  }
  auto file = create();
  file->add_scalar("loss", 200, 2);
  ASSERT_TRUE(file->flush().ok());
  READ_WITH_TENSORBOARD_OR_SKIP(output);
  EXPECT_NE(output.find(R"("page_scalars": {"loss": [[100, 1.0], [200, 2.0]]})"), std::string::npos)
      << output;
}

TEST_F(EventFileTest, SortsFileNamesByCreationWhenClockMovesBack) {
  const auto file = create();
  clock_.advance(-std::chrono::hours(1000));
  const auto later = create();
  EXPECT_LT(file->path(), later->path());
  clock_.advance(std::chrono::hours(2000));
  EXPECT_LT(later->path(), create()->path());
}

TEST_F(EventFileTest, RetainsAllEventsOnFullDisk) {
  auto file = create();
  const auto size = std::filesystem::file_size(file->path());
  file->add_scalar("loss", 1, 1);
  files_.fail_after_bytes(9);
  EXPECT_EQ(file->flush().code(), StatusCode::kNoSpace);
  EXPECT_EQ(std::filesystem::file_size(file->path()), size);
  files_.repair();
  file->add_scalar("loss", 2, 2);
  ASSERT_TRUE(file->flush().ok());
  EXPECT_EQ(file->dropped(), 0u);
  READ_WITH_TENSORBOARD_OR_SKIP(output);
  EXPECT_NE(output.find(R"("scalars": {"loss": [[1, 1.0], [2, 2.0]]})"), std::string::npos)
      << output;
}

TEST_F(EventFileTest, BoundsMemoryAndCountsDropsDuringLongOutage) {
  auto file = create();
  files_.fail_after_bytes(0);
  const uint64_t writes = files_.num_writes();
  for (uint64_t step = 0; step < 40000; ++step) file->add_scalar("loss", step, 1);
  EXPECT_EQ(files_.num_writes() - writes, 1u);  // not one for each record: they can be slow
  EXPECT_FALSE(file->flush().ok());
  EXPECT_GT(file->dropped(), 1000u);
  files_.repair();
  EXPECT_TRUE(file->flush().ok());
}

TEST_F(EventFileTest, WritesAllScalarsThatArriveBetweenTwoFlushes) {
  auto file = create();
  for (uint64_t step = 0; step < 40000; ++step) file->add_scalar("loss", step, 1);
  ASSERT_TRUE(file->flush().ok());
  EXPECT_EQ(file->dropped(), 0u);
  EXPECT_GT(std::filesystem::file_size(file->path()), size_t{1} << 20);
}

// The smallest PNG file: one red pixel.
std::string red_pixel() {
  constexpr std::string_view kBytes(
      "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1\b\2\0\0\0\x90wS\xde\0\0\0\fIDATx\x9c"
      "c\xf8\xcf\xc0\0\0\3\1\1\0\xc9\xfe\x92\xef\0\0\0\0IEND\xae"
      "B`\x82",
      69);
  return std::string(kBytes);
}

TEST_F(EventFileTest, WritesImageWithItsSize) {
  auto file = create();
  file->add_image("confusion", 7, red_pixel());
  ASSERT_TRUE(file->flush().ok());
  READ_WITH_TENSORBOARD_OR_SKIP(output);
  EXPECT_NE(output.find(R"("images": {"confusion": [[7, 1, 1, 69]]})"), std::string::npos)
      << output;
}

TEST_F(EventFileTest, DropsAndCountsInvalidOrOversizedImages) {
  auto file = create();
  file->add_image("confusion", 7, "not a PNG file");
  file->add_image("confusion", 7, red_pixel().substr(0, 20));
  file->add_image("confusion", 7, red_pixel() + std::string(kMaxImageBytes, 'x'));
  EXPECT_EQ(file->dropped(), 3u);
  const std::string large = red_pixel() + std::string(kMaxImageBytes - 69, 'x');
  for (uint64_t step = 0; step < 3; ++step) file->add_image("confusion", step, large);
  ASSERT_TRUE(file->flush().ok());
  EXPECT_EQ(file->dropped(), 3u) << "images of the maximum size fit, also several";
}

TEST_F(EventFileTest, WritesHistogramsReadableByTensorBoard) {
  auto file = create();
  file->add_histogram("parameters/w", 7,
                      {.count = 6,
                       .nan = 1,
                       .zeros = 1,
                       .mean = 0.4,
                       .min = -1,
                       .max = 2,
                       .norm = 3,
                       .buckets = {{-0.5, 1}, {0.5, 3}, {4, 1}},
                       .below = -1});
  file->add_histogram("parameters/gap", 7,
                      {.count = 2,
                       .min = -1,
                       .max = 2,
                       .norm = 3,
                       .buckets = {{-0.5, 1}, {-0.25, 0}, {0, 0}, {0.5, 0}, {4, 1}},
                       .below = -1});
  file->add_histogram("parameters/none", 7, {.count = 2, .nan = 2});
  ASSERT_TRUE(file->flush().ok());
  READ_WITH_TENSORBOARD_OR_SKIP(output);
  // The outer edges are the minimum and maximum value, which are inside the outer buckets.
  EXPECT_NE(output.find(
                R"("parameters/w": [[7, [[-1.0, -0.5, 1.0], [-0.5, 0.5, 3.0], [0.5, 2.0, 1.0]]]])"),
            std::string::npos)
      << output;
  EXPECT_NE(
      output.find(
          R"("parameters/gap": [[7, [[-1.0, -0.5, 1.0], [-0.5, 0.5, 0.0], [0.5, 2.0, 1.0]]]])"),
      std::string::npos)
      << output;
  EXPECT_NE(output.find(R"("parameters/none": [[7, )"), std::string::npos) << output;
}

TEST_F(EventFileTest, WritesAllHistogramsOfLargeModel) {
  auto file = create();
  TensorSummary summary{.count = 1000, .min = -1, .max = 1, .norm = 1};
  for (int i = 0; i < 450; ++i) summary.buckets.push_back({-1 + i / 225.0, 2});
  for (int i = 0; i < 400; ++i) file->add_histogram("w" + std::to_string(i), 1, summary);
  ASSERT_TRUE(file->flush().ok());
  EXPECT_EQ(file->dropped(), 0u);
  EXPECT_GT(std::filesystem::file_size(file->path()), size_t{400} * 450 * 16);
}

TEST_F(EventFileTest, WritesGraphReadableByTensorBoard) {
  const std::vector<GraphNode> graph{
      {.name = "feed/ring", .type = "ring", .output_shapes = {{8, 4}, {8}}},
      {.name = "model/0/weight",
       .type = "Parameter",
       .output_shapes = {{3, 4}},
       .attributes = {{"attr", std::string("frozen")}}},
      {.name = "model/0/linear",
       .type = "linear",
       .inputs = {"feed/ring", "model/0/weight"},
       .output_shapes = {{8, 3}}},
      {.name = "loss/nll",
       .type = "nll",
       .inputs = {"model/0/linear", "feed/ring:1"},
       .output_shapes = {std::vector<int64_t>()}},
      {.name = "optimizer/adamw",
       .type = "adamw",
       .inputs = {"loss/nll"},
       .attributes = {{"steps", int64_t{7}}}}};
  auto file = create();
  file->add_graph(encode_graph(graph));
  ASSERT_TRUE(file->flush().ok());
  READ_WITH_TENSORBOARD_OR_SKIP(output);
  EXPECT_NE(
      output.find(R"("graph": [["feed/ring", "ring", [], [[8, 4], [8]], {}], )"
                  R"(["model/0/weight", "Parameter", [], [[3, 4]], {"attr": "frozen"}], )"
                  R"(["model/0/linear", "linear", ["feed/ring", "model/0/weight"], [[8, 3]], {}], )"
                  R"(["loss/nll", "nll", ["model/0/linear", "feed/ring:1"], [[]], {}], )"
                  R"(["optimizer/adamw", "adamw", ["loss/nll"], [], {"steps": 7}]])"),
      std::string::npos)
      << output;
}

TEST_F(EventFileTest, WritesHparamsReadableByTensorBoard) {
  auto file = create();
  const std::vector<Setting> options = {
      {"model.name", "mlp"}, {"optimizer.lr", 0.5}, {"optimizer.nesterov", true}};
  file->add_hparams(kHparamsStartTag, encode_hparams_start(options, 12.5));
  file->add_hparams(kHparamsEndTag, encode_hparams_end(true, 20));
  ASSERT_TRUE(file->flush().ok());
  READ_WITH_TENSORBOARD_OR_SKIP(output);
  EXPECT_NE(
      output.find(R"("hparams": {"_hparams_/session_end_info": {"sessionEndInfo": )"
                  R"({"endTimeSecs": 20.0, "status": "STATUS_SUCCESS"}}, )"
                  R"("_hparams_/session_start_info": {"sessionStartInfo": {"hparams": )"
                  R"({"model.name": "mlp", "optimizer.lr": 0.5, "optimizer.nesterov": true}, )"
                  R"("startTimeSecs": 12.5}}})"),
      std::string::npos)
      << output;
}

TEST_F(EventFileTest, WritesLayoutReadableByTensorBoard) {
  auto file = create();
  file->add_layout({{.title = "training",
                     .charts = {{.title = "loss", .tags = {"^loss$"}},
                                {.title = "time", .tags = {"^a$", "^b$"}}}},
                    {.title = "empty", .charts = {}}});
  ASSERT_TRUE(file->flush().ok());
  READ_WITH_TENSORBOARD_OR_SKIP(output);
  EXPECT_NE(output.find(R"("layout": {"custom_scalars__config__": {"category": [{"chart": )"
                        R"([{"multiline": {"tag": ["^loss$"]}, "title": "loss"}, )"
                        R"({"multiline": {"tag": ["^a$", "^b$"]}, "title": "time"}], )"
                        R"("title": "training"}, {"title": "empty"}]}})"),
            std::string::npos)
      << output;
}

TEST_F(EventFileTest, WritesPrCurvesReadableByTensorBoard) {
  auto file = create();
  file->add_pr_curve("pr_curves/cat", 7, std::vector<uint64_t>{4, 3, 0},
                     std::vector<uint64_t>{12, 1, 0});
  file->add_pr_curve("pr_curves/none", 7, {}, {});  // no curve: no tag
  ASSERT_TRUE(file->flush().ok());
  READ_WITH_TENSORBOARD_OR_SKIP(output);
  EXPECT_NE(
      output.find(R"("pr_curves": {"pr_curves/cat": [[7, [[4.0, 3.0, 0.0], [12.0, 1.0, 0.0], )"
                  R"([0.0, 11.0, 12.0], [0.0, 1.0, 4.0], [0.25, 0.75, 0.0], )"
                  R"([1.0, 0.75, 0.0]]]]})"),
      std::string::npos)
      << output;
}

TEST_F(EventFileTest, ReportsErrorWhenFileCannotBeCreated) {
  EXPECT_FALSE(EventFile::create(files_, clock_, "/proc/none", {}).ok());
}

}  // namespace
}  // namespace stoker::metrics
