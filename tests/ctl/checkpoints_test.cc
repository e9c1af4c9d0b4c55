#include <sys/stat.h>

#include <array>
#include <limits>
#include <map>
#include <numeric>

#include <boost/json.hpp>

#include "ctl/checkpoint_diff.h"
#include "ctl/checkpoint_list.h"
#include "ctl/terminal.h"
#include "shared/base/file_locks.h"
#include "shared/base/hash.h"
#include "shared/checkpoint/store.h"
#include "shared/checkpoint/torch_file.h"
#include "shared/config/load_config.h"
#include "shared/run/setting_changes.h"
#include "tests/ctl/run_fixture.h"
#include "tests/support/tokenizer_files.h"

namespace stoker::ctl {
namespace {

using namespace std::chrono_literals;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class CheckpointCommandsTest : public CtlTest {
 protected:
  void SetUp() override {
    CtlTest::SetUp();
    std::filesystem::create_directories(layout().checkpoints_dir());
  }
  // What write_checkpoint() writes as `weight`, and as its average.
  static std::array<float, 4> weights_of(uint64_t step) {
    return {1, 2, 3, static_cast<float>(step)};
  }
  static std::array<float, 4> averages_of(uint64_t step) {
    return {-5, -6, -7, static_cast<float>(step) / 2};
  }
  // The tensor `name` of an exported file, of either format.
  static std::array<float, 4> values_in(const std::string& file,
                                        const std::string& name = "weight") {
    std::array<float, 4> values{};
    const auto opened = checkpoint::open_tensor_file(file);
    EXPECT_TRUE(opened.ok()) << opened.status().to_string();
    if (!opened.ok()) return values;
    const Status read = (*opened)->read(name, std::as_writable_bytes(std::span(values)));
    EXPECT_TRUE(read.ok()) << read.to_string();
    return values;
  }
  // Returns the SHA-256 of the manifest.
  std::string write_checkpoint(uint64_t step, bool with_ema = false,
                               std::optional<uint64_t> sample_errors = {}) {
    const std::array<float, 4> values = weights_of(step);
    const checkpoint::TensorViews tensors{
        {.spec = {.name = "weight", .dtype = DType::kF32, .shape = {4}},
         .bytes = std::as_bytes(std::span(values))}};
    checkpoint::CheckpointContent content;
    content.manifest.step = step;
    content.manifest.live_settings = "{}";
    content.manifest.sample_errors = sample_errors;
    content.model = content.optim = content.state = tensors;
    const std::array<float, 4> averages = averages_of(step);
    if (with_ema) content.ema = {{tensors[0].spec, std::as_bytes(std::span(averages))}};
    checkpoint::CheckpointStore store(layout().checkpoints_dir(), default_file_system());
    const auto committed = store.commit(content);
    EXPECT_TRUE(committed.ok()) << committed.status().to_string();
    return sha256_hex(*read_file(file(step, "manifest.json"), 1 << 20));
  }
  std::string file(uint64_t step, const std::string& name) const {
    return layout().checkpoints_dir() + "/" + checkpoint::CheckpointStore::checkpoint_name(step) +
           "/" + name;
  }
  static void flip_bit(const std::string& path) {
    std::fstream stream(path, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(-3, std::ios::end);
    const char byte = static_cast<char>(stream.get() ^ 4);
    stream.seekp(-3, std::ios::end);
    stream.put(byte);
  }
};

TEST_F(CheckpointCommandsTest, ListShowsEvaluationsAndMarksBest) {
  write_eval(200, 1.25, write_checkpoint(200));
  const std::string best = write_checkpoint(400);
  write_eval(400, 1.125, best);
  write_checkpoint(600);
  write_best(400, 1.125, best);
  const CommandResult result = ctl({"list"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, ContainsRegex(" 200  [0-9.]+ s  .* B +1\\.250 +1\\.803\n"));
  EXPECT_THAT(result.out, ContainsRegex(" 400 .* 1\\.125 .*  \\* best\n"));
  EXPECT_THAT(result.out, ContainsRegex(" 600 .* - +-  newest\n"));
  EXPECT_THAT(result.out, HasSubstr("best valid loss 1.125 at step 400\n"));
  EXPECT_LE(widest_line(result.out), 80u);
}

TEST_F(CheckpointCommandsTest, ListShowsSampleErrorsWhenAnyExist) {
  write_checkpoint(200);
  write_checkpoint(400, false, 0);
  EXPECT_THAT(ctl({"list"}).out, Not(HasSubstr("samples")));
  write_checkpoint(600, false, 17);
  const CommandResult result = ctl({"list"});
  EXPECT_THAT(result.out, ContainsRegex(" 200 .* - *\n"));
  EXPECT_THAT(result.out, ContainsRegex(" 400 .* 0 *\n"));
  EXPECT_THAT(result.out, ContainsRegex(" 600 .* 17 +newest\n"));
  const auto list = boost::json::parse(ctl({"--json", "list"}).out).at("checkpoints").as_array();
  EXPECT_FALSE(list[0].as_object().contains("sample_errors"));
  EXPECT_EQ(list[2].at("sample_errors").to_number<int>(), 17);
}

TEST_F(CheckpointCommandsTest, ListShowsAgeOfEachCheckpoint) {
  CheckpointList list{.run_dir = "r"};
  list.checkpoints = {{.step = 1, .created = "2026-01-31T12:00:00.500Z"},
                      {.step = 2, .created = "2026-01-31T15:10:00.000Z"},
                      {.step = 3, .created = "tomorrow"}};
  const auto noon = std::chrono::sys_days(std::chrono::year(2026) / 1 / 31) + 12h;
  const std::string text = render_list(list, kPiped, noon + 3h + 10min + 4s);
  EXPECT_THAT(text, ContainsRegex(" 1  +3 h 10 min "));
  EXPECT_THAT(text, ContainsRegex(" 2  +4.0 s "));
  EXPECT_THAT(text, ContainsRegex(" 3  +\\? "));
}

// With keep_last and keep_every_steps, each retained checkpoint shows its reason; retention can
// delete the others.
TEST_F(CheckpointCommandsTest, ListShowsRetentionReasons) {
  write_file(layout().config_file(),
             "model: {name: gpt}\ndata: {train: {format: text, path: x}}\ncheckpoint: {keep_last: "
             "2, keep_every_steps: "
             "300}\n");
  const std::string best = write_checkpoint(100);
  for (const uint64_t step : {200u, 300u, 400u, 500u}) write_checkpoint(step);
  write_best(100, 1, best);
  const CommandResult result = ctl({"list"});
  EXPECT_THAT(result.out, ContainsRegex(" 100 .* \\* best\n")) << result.out;
  EXPECT_THAT(result.out, ContainsRegex(" 200 .* B *\n"));
  EXPECT_THAT(result.out, ContainsRegex(" 300 .* kept: keep_every_steps\n"));
  EXPECT_THAT(result.out, ContainsRegex(" 400 .* kept: keep_last\n"));
  EXPECT_THAT(result.out, ContainsRegex(" 500 .* newest\n"));
  const auto root = boost::json::parse(ctl({"--json", "list"}).out);
  EXPECT_EQ(root.at("checkpoints").at(0).at("kept_by").as_string(), "best");
  EXPECT_EQ(root.at("checkpoints").at(1).at("kept_by").as_string(), "");
}

// The list uses the same inputs as retention: evaluation results and the completeness of the files.
TEST_F(CheckpointCommandsTest, ListAppliesRetentionPolicyToEvaluations) {
  write_file(
      layout().config_file(),
      "data: {train: {format: text, path: x}, valid: {format: text, path: y}}\nmodel: {name: gpt}\n"
      "eval: {datasets: [valid]}\n"
      "checkpoint: {keep_last: 2, save_top_k: 2}\n");
  write_eval(100, 1.5, write_checkpoint(100));
  const std::string best = write_checkpoint(200);
  write_eval(200, 1.25, best);
  write_best(200, 1.25, best);
  write_eval(300, 1.75, write_checkpoint(300));
  for (const uint64_t step : {400u, 500u}) write_checkpoint(step);
  std::filesystem::remove(file(300, "optimizer.safetensors"));
  const CommandResult result = ctl({"list"});
  EXPECT_THAT(result.out, ContainsRegex(" 100 .* kept: best\n")) << result.out;
  EXPECT_THAT(result.out, ContainsRegex(" 200 .* \\* best\n"));
  EXPECT_THAT(result.out, ContainsRegex(" 300 .* kept: incomplete\n"));
}

TEST_F(CheckpointCommandsTest, ListMarksOpenCheckpoints) {
  write_checkpoint(200);
  write_checkpoint(400);
  EXPECT_THAT(ctl({"list"}).out, Not(HasSubstr("open")));
  {
    const auto open_checkpoint = checkpoint::CheckpointStore::open_verified(
        layout().checkpoints_dir() + "/" + checkpoint::CheckpointStore::checkpoint_name(200));
    ASSERT_TRUE(open_checkpoint.ok());
    if (!FileLocks::read().is_locked(file(200, "SHA256SUMS")))
      GTEST_SKIP() << "the kernel does not list the locks of this file system";
    EXPECT_THAT(ctl({"list"}).out, ContainsRegex(" 200 .* open\n"));
    EXPECT_TRUE(boost::json::parse(ctl({"--json", "list"}).out)
                    .at("checkpoints")
                    .at(0)
                    .at("is_open")
                    .as_bool());
  }
  EXPECT_THAT(ctl({"list"}).out, Not(HasSubstr("open")));
}

TEST_F(CheckpointCommandsTest, ListIgnoresResultOfAnotherCheckpointWithSameStep) {
  write_checkpoint(200);
  write_eval(200, 1.25, std::string(64, 'a'));
  write_best(200, 1.25, std::string(64, 'a'));
  const CommandResult result = ctl({"list"});
  EXPECT_THAT(result.out, ContainsRegex(" 200 .* -  newest\n")) << result.out;
  EXPECT_THAT(result.out, HasSubstr("that checkpoint was deleted"));
}

TEST_F(CheckpointCommandsTest, ListMarksCorruptCheckpointAndContinues) {
  write_checkpoint(200);
  write_checkpoint(400);
  write_file(file(200, "manifest.json"), "{\"step\":");
  const CommandResult result = ctl({"list"});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, ContainsRegex(" 200 .*CORRUPT: .*manifest.json"));
  EXPECT_THAT(result.out, ContainsRegex(" 400 .* newest\n"));
}

TEST_F(CheckpointCommandsTest, ListWritesAllFieldsAsJson) {
  const std::string sha256 = write_checkpoint(200);
  write_eval(200, 1.25, sha256);
  write_best(200, 1.25, sha256);
  write_checkpoint(400);
  const CommandResult result = ctl({"--json", "list"});
  const auto root = boost::json::parse(result.out);
  EXPECT_EQ(root.at("metric").as_string(), "loss");
  EXPECT_EQ(root.at("best").at("step").to_number<int>(), 200);
  const auto& list = root.at("checkpoints").as_array();
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0].at("value").to_number<double>(), 1.25);
  EXPECT_GT(list[0].at("metrics").at("bits_per_byte").to_number<double>(), 1.25);
  EXPECT_TRUE(list[0].at("is_best").as_bool());
  EXPECT_GT(list[0].at("bytes").to_number<uint64_t>(), 0u);
  EXPECT_TRUE(list[1].at("value").is_null());
}

TEST_F(CheckpointCommandsTest, ListSucceedsWithoutCheckpoints) {
  EXPECT_EQ(ctl({"list"}).code, 0);
  EXPECT_THAT(ctl({"list"}).out, HasSubstr("no checkpoint"));
  const CommandResult verify = ctl({"verify"});
  EXPECT_EQ(verify.code, 78);
  EXPECT_THAT(verify.err, HasSubstr("no checkpoint yet"));
}

TEST_F(CheckpointCommandsTest, ReportsInvalidRecordWhenCheckpointsAreMissing) {
  write_file(layout().last_checkpoint_file(), "{");
  EXPECT_THAT(ctl({"list"}).out, HasSubstr("now, and the last one is unknown: "));
  EXPECT_THAT(ctl({"verify"}).err, HasSubstr("last_checkpoint.json: not JSON"));
}

TEST_F(CheckpointCommandsTest, NamesLastSavedStepWhenCheckpointsAreMissing) {
  write_file(layout().last_checkpoint_file(), R"({"step":400,"manifest_sha256":"ab"})");
  for (const char* const command : {"list", "verify"}) {
    const CommandResult result = ctl({command});
    EXPECT_THAT(result.out + result.err, HasSubstr("now, but the run has saved step 400; mount"));
  }
}

TEST_F(CheckpointCommandsTest, VerifyAcceptsIntactCheckpoints) {
  write_checkpoint(200);
  write_checkpoint(400);
  const CommandResult newest = ctl({"verify"});
  EXPECT_EQ(newest.code, 0) << newest.err;
  EXPECT_THAT(newest.out, HasSubstr("step 400: OK (3 files and the manifest, "));
  EXPECT_THAT(ctl({"verify", "200"}).out, HasSubstr("step 200: OK"));
  const CommandResult all = ctl({"verify", "--all"});
  EXPECT_THAT(all.out, HasSubstr("step 200: OK"));
  EXPECT_THAT(all.out, HasSubstr("step 400: OK"));
}

TEST_F(CheckpointCommandsTest, VerifyReportsFileWithFlippedBit) {
  write_checkpoint(200);
  write_checkpoint(400);
  for (const char* name : {"model.safetensors", "optimizer.safetensors",
                           "trainer_state.safetensors", "manifest.json"}) {
    flip_bit(file(200, name));
    const CommandResult result = ctl({"verify", "200"});
    EXPECT_EQ(result.code, 65);
    EXPECT_THAT(result.out, HasSubstr(name));
    flip_bit(file(200, name));
  }
  EXPECT_EQ(ctl({"verify", "200"}).code, 0);
  std::filesystem::remove(file(200, "optimizer.safetensors"));
  const CommandResult all = ctl({"verify", "--all"});
  EXPECT_EQ(all.code, 65);
  EXPECT_THAT(all.out, HasSubstr("optimizer.safetensors: missing"));
  EXPECT_THAT(all.out, HasSubstr("step 400: OK"));
  EXPECT_EQ(ctl({"verify"}).code, 0) << "the newest is intact";
}

TEST_F(CheckpointCommandsTest, VerifyReportsResultAsJson) {
  write_checkpoint(200);
  EXPECT_TRUE(boost::json::parse(ctl({"--json", "verify"}).out).at("ok").as_bool());
  flip_bit(file(200, "model.safetensors"));
  const CommandResult result = ctl({"--json", "verify"});
  EXPECT_EQ(result.code, 65);
  const auto root = boost::json::parse(result.out);
  EXPECT_FALSE(root.at("ok").as_bool());
  EXPECT_NE(root.at("checkpoints").at(0).at("error").as_string().find("model.safetensors"),
            std::string::npos);
}

TEST_F(CheckpointCommandsTest, VerifyListsExistingStepsOnUnknownStep) {
  write_checkpoint(200);
  write_checkpoint(400);
  const CommandResult result = ctl({"verify", "300"});
  EXPECT_EQ(result.code, 78);
  EXPECT_THAT(result.err, HasSubstr("no checkpoint of step 300; available steps: 200 400"));
  EXPECT_THAT(result.out, Not(HasSubstr("300")));
}

TEST_F(CheckpointCommandsTest, VerifyAcceptsBestAndLatest) {
  const std::string best = write_checkpoint(200);
  write_checkpoint(400);
  EXPECT_THAT(ctl({"verify", "best"}).err, HasSubstr("no evaluation yet"));
  write_best(200, 1, best);
  EXPECT_THAT(ctl({"verify", "best"}).out, HasSubstr("step 200: OK"));
  EXPECT_THAT(ctl({"verify", "latest"}).out, HasSubstr("step 400: OK"));
  write_best(200, 1, std::string(64, 'a'));  // another checkpoint of that step
  const CommandResult gone = ctl({"verify", "best"});
  EXPECT_EQ(gone.code, 78);
  EXPECT_THAT(gone.err, HasSubstr("of step 200, was deleted; available steps: 200 400"));
}

TEST_F(CheckpointCommandsTest, RejectsNewerFormatWithOneLine) {
  write_checkpoint(200);
  std::string manifest = *read_file(file(200, "manifest.json"), 1 << 20);
  const std::string old_sum = sha256_hex(manifest);
  manifest.replace(manifest.find("\"format\":2"), 10, "\"format\":4");
  write_file(file(200, "manifest.json"), manifest);
  std::string sums = *read_file(file(200, "SHA256SUMS"), 1 << 20);
  sums.replace(sums.find(old_sum), 64, sha256_hex(manifest));
  write_file(file(200, "SHA256SUMS"), sums);
  for (const char* command : {"verify", "export"}) {
    const CommandResult result = ctl({command, "latest"});
    EXPECT_EQ(result.code, 78) << command;
    EXPECT_THAT(result.err, HasSubstr("format 4; this version reads up to 3"));
    EXPECT_EQ(std::ranges::count(result.err, '\n'), 1);
  }
  EXPECT_THAT(ctl({"list"}).out, HasSubstr("format 4"));
}

TEST_F(CheckpointCommandsTest, DryRunOfExportChecksAndWritesNothing) {
  write_checkpoint(200);
  for (const char* const format : {"safetensors", "torch", "dcp"}) {
    const std::string output = path(std::string("planned.") + format);
    const CommandResult planned =
        ctl({"export", "latest", "--dry-run", "--format", format, "--output", output});
    ASSERT_EQ(planned.code, 0) << planned.err;
    EXPECT_THAT(planned.out, HasSubstr("would be written to " + output));
    EXPECT_FALSE(std::filesystem::exists(output)) << format;
  }
  EXPECT_THAT(
      ctl({"--json", "export", "latest", "--dry-run", "--output", path("planned.json")}).out,
      HasSubstr(R"("dry_run":true)"));
  for (const auto& entry : std::filesystem::directory_iterator(root_.path()))
    EXPECT_EQ(entry.path().filename().string().find("planned"), std::string::npos) << entry.path();
  write_file(path("existing"), "");
  EXPECT_NE(ctl({"export", "latest", "--dry-run", "--output", path("existing")}).code, 0);
  EXPECT_NE(ctl({"export", "latest", "--dry-run", "--include", "ema"}).code, 0);
}

TEST_F(CheckpointCommandsTest, ExportWritesEachFormatAndComponent) {
  write_checkpoint(200);
  const std::string torch = path("w.pt"), all = path("all.safetensors");
  const CommandResult result = ctl({"export", "latest", "--format", "torch", "--output", torch});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, ContainsRegex("step 200: 1 tensors, .* in .*w.pt\n"));
  const auto opened = checkpoint::TorchFile::open(torch);
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  EXPECT_EQ(to_string((*opened)->tensors().front()), "weight F32 [4]");
  const CommandResult json = ctl({"--json", "export", "200", "--include", "all", "--output", all});
  EXPECT_EQ(boost::json::parse(json.out).at("tensors").to_number<int>(), 3);
  const auto parts = checkpoint::SafetensorsFile::open(all);
  ASSERT_TRUE(parts.ok()) << parts.status().to_string();
  for (const char* name : {"model.weight", "optimizer.weight", "state.weight"})
    EXPECT_NE((*parts)->find(name), nullptr) << name;
}

TEST_F(CheckpointCommandsTest, ExportWritesFolderForDistributedCheckpoint) {
  write_checkpoint(200);
  const std::string folder = path("w.dcp");
  const CommandResult result =
      ctl({"export", "latest", "--format", "dcp", "--include", "all", "--output", folder});
  EXPECT_EQ(result.code, 0) << result.err;
  const auto opened =
      checkpoint::SafetensorsFile::open(folder + "/model-00001-of-00001.safetensors");
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  for (const char* name : {"model.weight", "state.weight"})
    EXPECT_NE((*opened)->find(name), nullptr) << name;
  const CommandResult existing = ctl({"export", "200", "--format", "dcp", "--output", folder});
  EXPECT_EQ(existing.code, 74);
  EXPECT_THAT(existing.err, HasSubstr("w.dcp: already exists"));
  flip_bit(file(200, "model.safetensors"));
  EXPECT_EQ(ctl({"export", "200", "--format", "dcp", "--output", path("new.dcp")}).code, 65);
  EXPECT_EQ(std::ranges::count_if(
                std::filesystem::directory_iterator(std::filesystem::path(folder).parent_path()),
                [](const auto& entry) {
                  return entry.path().filename().string().find("new.dcp") != std::string::npos;
                }),
            0);
}

// best.json has the loss of the averaged weights, which the file must have, too.
TEST_F(CheckpointCommandsTest, ExportOfBestWritesTheEvaluatedWeights) {
  const auto configure = [&](const std::string& eval) {
    write_file(layout().config_file(),
               "data: {train: {format: text, path: a}, val: {format: text, path: b}}\n"
               "model: {name: gpt}\ntask: {name: language_modeling}\n"
               "train: {max_steps: 500, ema_decay: 0.9}\neval: " +
                   eval + "\n");
    const auto config = config::load_config(layout().config_file(), {});
    ASSERT_TRUE(config.ok()) << config.status().to_string();
  };
  int number = 0;
  const auto expect_export = [&](std::vector<std::string> arguments, const char* printed,
                                 const std::array<float, 4>& expected) {
    const std::string file = path("exported" + std::to_string(++number));
    arguments.insert(arguments.begin(), {"export", "--output", file});
    EXPECT_THAT(ctl(arguments).out, HasSubstr(printed)) << number;
    EXPECT_EQ(values_in(file), expected) << number;
  };
  write_best(400, 1.125, write_checkpoint(400, true));
  write_checkpoint(500, true);
  ASSERT_NO_FATAL_FAILURE(configure("{use_ema: true}"));
  constexpr const char* kAveraged = "step 400: 1 tensors of averaged weights, ";
  constexpr const char* kTrained = "step 400: 1 tensors, ";
  expect_export({"best"}, kAveraged, averages_of(400));
  expect_export({"best", "--format", "torch"}, kAveraged, averages_of(400));
  expect_export({"best", "--include", "model"}, kTrained, weights_of(400));
  expect_export({"400"}, kTrained, weights_of(400));
  ASSERT_NO_FATAL_FAILURE(configure("{use_ema: false}"));
  expect_export({"best"}, kTrained, weights_of(400));
  expect_export({"best", "--include", "ema"}, kAveraged, averages_of(400));
}

// As after `stoker-eval --set eval.use_ema=…`, whatever the configuration of the run has.
TEST_F(CheckpointCommandsTest, ExportOfBestWritesWeightsThatTheResultNames) {
  const std::string manifest = write_checkpoint(400, true);
  write_best(400, 1.125, manifest);
  for (const bool use_ema : {true, false}) {
    write_file(
        layout().config_file(),
        "data: {train: {format: text, path: a}, val: {format: text, path: b}}\nmodel: {name: gpt}\n"
        "train: {max_steps: 500, ema_decay: 0.9}\neval: {use_ema: " +
            std::string(use_ema ? "false" : "true") + "}\n");
    write_eval(400, 1.125, manifest, use_ema);
    const std::string file = path(use_ema ? "averaged" : "trained");
    EXPECT_EQ(ctl({"export", "best", "--output", file}).code, 0);
    EXPECT_EQ(values_in(file), use_ema ? averages_of(400) : weights_of(400));
  }
}

TEST_F(CheckpointCommandsTest, ExportWritesEmaWeightsOnlyWhenPresent) {
  write_checkpoint(200);
  write_checkpoint(400, true);
  const CommandResult none = ctl({"export", "200", "--include", "ema", "--output", path("none")});
  EXPECT_NE(none.code, 0);
  EXPECT_THAT(none.err, HasSubstr("has no averaged weights"));
  EXPECT_FALSE(std::filesystem::exists(path("none")));
  const std::string ema = path("ema.safetensors"), all = path("all.safetensors");
  EXPECT_EQ(ctl({"export", "400", "--include", "ema", "--output", ema}).code, 0);
  EXPECT_EQ(values_in(ema), averages_of(400));
  EXPECT_EQ(ctl({"export", "400", "--include", "all", "--output", all}).code, 0);
  EXPECT_EQ(values_in(all, "ema.weight"), averages_of(400));
  EXPECT_EQ(values_in(all, "model.weight"), weights_of(400));
}

// A run of a model with a matrix, whose checkpoint of step 200 has averaged weights of 0.
class HuggingFaceExportTest : public CheckpointCommandsTest {
 protected:
  void SetUp() override {
    CheckpointCommandsTest::SetUp();
    write_file(path("source/config.json"),
               R"({"model_type": "gpt2", "n_layer": 1, "n_head": 1, "n_embd": 2, "n_positions": 4,
                   "vocab_size": 300, "eos_token_id": 7})");
    write_file(path("source/generation_config.json"), R"({"temperature": 0.5})");
    write_file(path("text/tokenizer.json"), test::to_json(test::small_tokenizer()));
    write_run("gpt2, pretrained: {path: " + path("source") + "}");
    std::vector<float> values(600);
    std::iota(values.begin(), values.end(), 1.0f);
    const std::vector<float> zeros(600);
    const auto tensors = [](const std::vector<float>& of) {
      checkpoint::TensorViews views;
      for (const auto& [name, shape] :
           std::map<std::string, std::vector<int64_t>>{{"tok.weight", {300, 2}},
                                                       {"pos.weight", {4, 2}},
                                                       {"blocks.0.ln1.weight", {2}},
                                                       {"blocks.0.ln1.bias", {2}},
                                                       {"blocks.0.qkv.weight", {6, 2}},
                                                       {"blocks.0.qkv.bias", {6}},
                                                       {"blocks.0.proj.weight", {2, 2}},
                                                       {"blocks.0.proj.bias", {2}},
                                                       {"blocks.0.ln2.weight", {2}},
                                                       {"blocks.0.ln2.bias", {2}},
                                                       {"blocks.0.up.weight", {8, 2}},
                                                       {"blocks.0.up.bias", {8}},
                                                       {"blocks.0.down.weight", {2, 8}},
                                                       {"blocks.0.down.bias", {2}},
                                                       {"ln.weight", {2}},
                                                       {"ln.bias", {2}}}) {
        const TensorSpec spec{.name = name, .dtype = DType::kF32, .shape = shape};
        views.push_back({.spec = spec, .bytes = std::as_bytes(std::span(of)).first(spec.bytes())});
      }
      return views;
    };
    checkpoint::CheckpointContent content;
    content.manifest.step = 200;
    content.manifest.live_settings = "{}";
    const auto config = config::load_config(layout().config_file(), {});
    ASSERT_TRUE(config.ok()) << config.status().to_string();
    content.manifest.config_digest = config::digest(*config);
    content.manifest.tokenizer = sha256_hex(test::to_json(test::small_tokenizer()));
    content.model = content.optim = content.state = tensors(values);
    content.ema = tensors(zeros);
    checkpoint::CheckpointStore store(layout().checkpoints_dir(), default_file_system());
    const auto committed = store.commit(content);
    ASSERT_TRUE(committed.ok()) << committed.status().to_string();
  }
  void write_run(const std::string& model) {
    write_file(
        layout().config_file(),
        "data: {train: {format: text, path: a, tokenizer: {path: " + path("text/tokenizer.json") +
            "}}}\nmodel: {name: " + model + "}\ntrain: {max_steps: 300}\n");
  }
  CommandResult export_to(const std::string& folder, const std::string& content = "model") {
    return ctl({"export", "200", "--format", "huggingface", "--include", content, "--output",
                path(folder)});
  }
  float first_after_transposition(const std::string& folder) {
    const auto file = checkpoint::SafetensorsFile::open(path(folder) + "/model.safetensors");
    EXPECT_TRUE(file.ok()) << file.status().to_string();
    const std::string name = "transformer.h.0.attn.c_attn.weight";
    const TensorSpec* const spec = (*file)->find(name);
    EXPECT_EQ(spec == nullptr ? "" : to_string(*spec), name + " F32 [2, 6]");
    std::vector<float> values(12);
    EXPECT_TRUE((*file)->read(name, std::as_writable_bytes(std::span(values))).ok());
    return values[1];
  }
};

TEST_F(HuggingFaceExportTest, WritesAFolder) {
  const CommandResult result = export_to("out");
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(first_after_transposition("out"), 3);
  const auto config = boost::json::parse(*read_file(path("out/config.json"), 1 << 20)).as_object();
  EXPECT_EQ(config.at("model_type"), "gpt2");
  EXPECT_EQ(config.at("n_embd"), 2);
  EXPECT_EQ(config.at("eos_token_id"), 7);
  const auto generation =
      boost::json::parse(*read_file(path("out/generation_config.json"), 1 << 20)).as_object();
  EXPECT_EQ(generation.at("temperature"), 0.5);
  EXPECT_EQ(generation.at("eos_token_id"), 7);
  const std::string card = *read_file(path("out/README.md"), 1 << 20);
  EXPECT_THAT(card, HasSubstr("library_name: transformers"));
  EXPECT_THAT(card, HasSubstr("- step: 200 of 300\n- weights: trained\n"));
  EXPECT_THAT(card, HasSubstr("- started from: `" + path("source") + "`"));
}

TEST_F(HuggingFaceExportTest, WritesTheTokenizerOfTheRun) {
  write_file(path("source/config.json"),
             R"({"model_type": "gpt2", "n_layer": 1, "n_head": 1, "n_embd": 2, "n_positions": 4,
                 "vocab_size": 300})");
  ASSERT_EQ(export_to("out").code, 0);
  const auto read = [&](const std::string& name) { return *read_file(path(name), 1 << 20); };
  EXPECT_EQ(read("out/tokenizer.json"), read("text/tokenizer.json"));
  const auto made = boost::json::parse(read("out/tokenizer_config.json")).as_object();
  EXPECT_EQ(made.at("eos_token"), "<|endoftext|>");
  EXPECT_EQ(made.at("model_max_length"), 4);
  EXPECT_EQ(boost::json::parse(read("out/config.json")).as_object().at("eos_token_id"), 260);
  // Those that are there are taken.
  write_file(path("text/tokenizer_config.json"), "{\"a\": 1}");
  write_file(path("text/chat_template.jinja"), "{{ messages }}");
  ASSERT_EQ(export_to("second").code, 0);
  EXPECT_EQ(read("second/tokenizer_config.json"), "{\"a\": 1}");
  EXPECT_EQ(read("second/chat_template.jinja"), "{{ messages }}");
}

TEST_F(HuggingFaceExportTest, WarnsIfTheTokenizerIsNotThatOfTheCheckpoint) {
  write_file(path("text/tokenizer.json"), test::to_json(test::small_tokenizer()) + " ");
  const CommandResult changed = export_to("changed");
  EXPECT_EQ(changed.code, 0);
  EXPECT_THAT(changed.err, HasSubstr("tokenizer.json: was changed since the checkpoint was saved; "
                                     "the folder has no tokenizer"));
  EXPECT_FALSE(std::filesystem::exists(path("changed/tokenizer.json")));
}

// stokerd writes what stokerctl sets to the configuration of the run.
TEST_F(HuggingFaceExportTest, AcceptsSettingsThatChangedDuringTheRun) {
  const auto config = read_file(layout().config_file(), 1 << 20);
  ASSERT_TRUE(config.ok());
  write_file(layout().config_file(), *config + "optimizer: {lr: 0.5}\n");
  EXPECT_THAT(export_to("edited").err, HasSubstr("was changed since the checkpoint was saved"));
  const auto change = [](const std::string& previous, const std::string& current) {
    return run::to_json({.time = "2026-01-02T03:04:05Z",
                         .step = 210,
                         .key = "optimizer.lr",
                         .previous = previous,
                         .current = current}) +
           "\n";
  };
  write_file(layout().setting_changes_file(), change("3.0e-04", "0.1") + change("0.1", "0.5"));
  const CommandResult changed = export_to("changed");
  EXPECT_EQ(changed.code, 0);
  EXPECT_EQ(changed.err, "");
}

TEST_F(HuggingFaceExportTest, ComparesTheSettingsWithTheCheckpoint) {
  EXPECT_EQ(export_to("same").err, "");
  const std::string sizes =
      "num_heads: 1, embed_dim: 2, context_length: 4, vocab_size: 300, num_layers: ";
  write_run("gpt2, layer_norm_eps: 1.0e-4, " + sizes + "1");
  const CommandResult changed = export_to("changed");
  EXPECT_EQ(changed.code, 0);
  EXPECT_THAT(changed.err, HasSubstr("config.yaml was changed since the checkpoint was saved; "
                                     "the export has its settings"));
  for (const auto& [model, message] : std::map<std::string, std::string>{
           {"gpt2, mlp_dim: 4, " + sizes + "1",
            "the checkpoint has blocks.0.down.weight F32 [2, 8], but the model of the run's "
            "config.yaml has blocks.0.down.weight F32 [2, 4]"},
           {"gpt2, " + sizes + "2",
            "the checkpoint has no blocks.1.down.bias, but the model of the run's config.yaml has "
            "one; restore the settings that it was trained with"},
           {"gpt2, tie_weights: false, " + sizes + "1", "the checkpoint has no head.weight"},
           {"llama, " + sizes + "1",
            "but the model of the run's config.yaml has no such tensor"}}) {
    write_run(model);
    const CommandResult result = export_to("other");
    EXPECT_NE(result.code, 0) << model;
    EXPECT_THAT(result.err, HasSubstr(message)) << model;
    EXPECT_FALSE(std::filesystem::exists(path("other")));
  }
}

// A run of a bert with three classes.
class BertExportTest : public CheckpointCommandsTest {
 protected:
  void SetUp() override {
    CheckpointCommandsTest::SetUp();
    const std::string tokenizer = test::to_json(test::small_word_piece());
    write_file(path("text/tokenizer.json"), tokenizer);
    write_run("pooler");
    std::map<std::string, std::vector<int64_t>> shapes{
        {"tok.weight", {11, 2}},        {"pos.weight", {8, 2}},    {"type.weight", {2, 2}},
        {"embed_ln.weight", {2}},       {"embed_ln.bias", {2}},    {"pooler.weight", {2, 2}},
        {"pooler.bias", {2}},           {"fc.weight", {3, 2}},     {"fc.bias", {3}},
        {"blocks.0.up.weight", {4, 2}}, {"blocks.0.up.bias", {4}}, {"blocks.0.down.weight", {2, 4}},
        {"blocks.0.down.bias", {2}}};
    for (const std::string name : {"q", "k", "v", "proj"}) {
      shapes["blocks.0." + name + ".weight"] = {2, 2};
      shapes["blocks.0." + name + ".bias"] = {2};
    }
    for (const std::string name : {"ln1", "ln2"})
      shapes["blocks.0." + name + ".weight"] = shapes["blocks.0." + name + ".bias"] = {2};
    const std::vector<float> values(22, 1.0f);
    checkpoint::CheckpointContent content;
    for (const auto& [name, shape] : shapes) {
      const TensorSpec spec{.name = name, .dtype = DType::kF32, .shape = shape};
      content.model.push_back(
          {.spec = spec, .bytes = std::as_bytes(std::span(values)).first(spec.bytes())});
    }
    content.optim = content.state = content.model;
    content.manifest.step = 200;
    content.manifest.live_settings = "{}";
    content.manifest.tokenizer = sha256_hex(tokenizer);
    checkpoint::CheckpointStore store(layout().checkpoints_dir(), default_file_system());
    const auto committed = store.commit(content);
    ASSERT_TRUE(committed.ok()) << committed.status().to_string();
  }
  void write_run(const std::string& pooling, const std::string& layers = "1") {
    write_file(layout().config_file(),
               "data: {train: {format: jsonl, path: a, fields: {text: t, label: l}, tokenizer: "
               "{path: " +
                   path("text/tokenizer.json") +
                   "}, sequence: {max_length: 8}}}\ntask: {name: classification}\nmodel: {name: "
                   "bert, num_heads: 1, embed_dim: 2, mlp_dim: 4, context_length: 8, vocab_size: "
                   "11, num_layers: " +
                   layers + ", pooling: " + pooling + "}\n");
  }
  CommandResult export_to(const std::string& folder) {
    return ctl({"export", "200", "--format", "huggingface", "--output", path(folder)});
  }
};

TEST_F(BertExportTest, WritesAClassifierWithItsTokenizer) {
  const CommandResult result = export_to("out");
  ASSERT_EQ(result.code, 0) << result.err;
  const auto file = checkpoint::SafetensorsFile::open(path("out/model.safetensors"));
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  for (const char* const name :
       {"bert.embeddings.LayerNorm.weight", "bert.encoder.layer.0.attention.self.key.bias",
        "bert.pooler.dense.weight", "classifier.weight"})
    EXPECT_NE((*file)->find(name), nullptr) << name;
  const auto object = [&](const std::string& name) {
    return boost::json::parse(*read_file(path(name), 1 << 20)).as_object();
  };
  const auto config = object("out/config.json");
  EXPECT_EQ(config.at("architectures").at(0), "BertForSequenceClassification");
  EXPECT_EQ(config.at("problem_type"), "single_label_classification");
  EXPECT_EQ(config.at("id2label").as_object().size(), 3u);
  EXPECT_TRUE(config.at("pad_token_id").is_null()) << "its embedding was trained";
  EXPECT_FALSE(std::filesystem::exists(path("out/generation_config.json")));
  const auto tokenizer = object("out/tokenizer_config.json");
  EXPECT_EQ(tokenizer.at("pad_token"), "[PAD]");
  EXPECT_EQ(tokenizer.at("cls_token"), "[CLS]");
  EXPECT_EQ(tokenizer.at("model_max_length"), 8);
  EXPECT_THAT(*read_file(path("out/README.md"), 1 << 20),
              HasSubstr("pipeline_tag: text-classification"));
}

TEST_F(BertExportTest, RejectsOtherSettings) {
  write_run("mean");
  EXPECT_THAT(export_to("out").err, HasSubstr("transformers has no class for model bert"));
  write_run("pooler", "2");
  EXPECT_THAT(export_to("out").err, HasSubstr("the checkpoint has no blocks.1."));
  EXPECT_FALSE(std::filesystem::exists(path("out")));
}

// A run of a vit with three classes, for images of 4 x 4.
class ImageExportTest : public CheckpointCommandsTest {
 protected:
  void SetUp() override {
    CheckpointCommandsTest::SetUp();
    write_run(kVit);
    std::map<std::string, std::vector<int64_t>> shapes{
        {"class_token", {1, 1, 4}},         {"encoder.pos_embedding", {1, 5, 4}},
        {"conv_proj.weight", {4, 3, 2, 2}}, {"conv_proj.bias", {4}},
        {"encoder.ln.weight", {4}},         {"encoder.ln.bias", {4}},
        {"heads.head.weight", {3, 4}},      {"heads.head.bias", {3}}};
    for (const auto& [name, shape] :
         std::map<std::string, std::vector<int64_t>>{{"ln_1.weight", {4}},
                                                     {"ln_1.bias", {4}},
                                                     {"self_attention.in_proj_weight", {12, 4}},
                                                     {"self_attention.in_proj_bias", {12}},
                                                     {"self_attention.out_proj.weight", {4, 4}},
                                                     {"self_attention.out_proj.bias", {4}},
                                                     {"ln_2.weight", {4}},
                                                     {"ln_2.bias", {4}},
                                                     {"mlp.0.weight", {6, 4}},
                                                     {"mlp.0.bias", {6}},
                                                     {"mlp.3.weight", {4, 6}},
                                                     {"mlp.3.bias", {4}}})
      shapes["encoder.layers.encoder_layer_0." + name] = shape;
    std::vector<float> values(48);
    std::iota(values.begin(), values.end(), 1.0f);
    checkpoint::CheckpointContent content;
    for (const auto& [name, shape] : shapes) {
      const TensorSpec spec{.name = name, .dtype = DType::kF32, .shape = shape};
      content.model.push_back(
          {.spec = spec, .bytes = std::as_bytes(std::span(values)).first(spec.bytes())});
    }
    content.optim = content.state = content.model;
    content.manifest.step = 200;
    content.manifest.live_settings = "{}";
    checkpoint::CheckpointStore store(layout().checkpoints_dir(), default_file_system());
    const auto committed = store.commit(content);
    ASSERT_TRUE(committed.ok()) << committed.status().to_string();
  }
  void write_run(const std::string& model) {
    write_file(
        layout().config_file(),
        "data:\n  train: {format: image_folder, path: a, transforms: [random_resized_crop: "
        "{size: 4}, normalize: {mean: [0.5], std: [0.25]}]}\n  val: {format: image_folder, "
        "path: b, transforms: [resize: {size: 8, interpolation: bicubic}, center_crop: {size: "
        "4}]}\n"
        "task: {name: classification}\nmodel: {name: " +
            model + "}\n");
  }
  // A checkpoint of an adapter with this tensor, at step 300.
  void commit_adapter(const TensorSpec& spec) {
    const std::vector<float> values(static_cast<size_t>(spec.elements()));
    checkpoint::CheckpointContent content;
    content.model.push_back({.spec = spec, .bytes = std::as_bytes(std::span(values))});
    content.optim = content.state = content.model;
    content.manifest.step = 300;
    content.manifest.live_settings = "{}";
    content.manifest.base_weights = checkpoint::BaseWeights{.path = path("base"),
                                                            .sha256 = std::string(64, '0'),
                                                            .tensors = {},
                                                            .r = 1,
                                                            .lora_alpha = 2};
    checkpoint::CheckpointStore store(layout().checkpoints_dir(), default_file_system());
    ASSERT_TRUE(store.commit(content).ok());
  }
  CommandResult export_to(const std::string& folder, const std::string& format) {
    return ctl({"export", "200", "--format", format, "--output", path(folder)});
  }
  boost::json::object object(const std::string& name) {
    return boost::json::parse(*read_file(path(name), 1 << 20)).as_object();
  }

  static constexpr char kVit[] =
      "vit, patch_size: 2, num_layers: 1, num_heads: 2, hidden_dim: 4, mlp_dim: 6";
};

TEST_F(ImageExportTest, WritesAFolderForTransformers) {
  const CommandResult result = export_to("out", "huggingface");
  ASSERT_EQ(result.code, 0) << result.err;
  const auto file = checkpoint::SafetensorsFile::open(path("out/model.safetensors"));
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  EXPECT_EQ((*file)->tensors().size(), 24u) << "two tensors are three each";
  const std::string name = "vit.encoder.layer.0.attention.attention.value.weight";
  ASSERT_NE((*file)->find(name), nullptr);
  std::vector<float> values(16);
  ASSERT_TRUE((*file)->read(name, std::as_writable_bytes(std::span(values))).ok());
  EXPECT_EQ(values.front(), 33) << "of the last third";
  const auto config = object("out/config.json");
  EXPECT_EQ(config.at("architectures").at(0), "ViTForImageClassification");
  EXPECT_EQ(config.at("image_size"), 4);
  EXPECT_EQ(config.at("problem_type"), "single_label_classification");
  EXPECT_EQ(config.at("id2label").as_object().size(), 3u);
  const auto preprocessor = object("out/preprocessor_config.json");
  EXPECT_EQ(preprocessor.at("image_processor_type"), "CLIPImageProcessor");
  EXPECT_EQ(preprocessor.at("size").at("shortest_edge"), 8) << "that of the evaluation";
  EXPECT_EQ(preprocessor.at("crop_size").at("width"), 4);
  EXPECT_EQ(preprocessor.at("image_mean").at(2), 0.5);
  EXPECT_EQ(preprocessor.at("resample"), 3) << "Pillow's number of bicubic";
  EXPECT_EQ(preprocessor.at("image_std").at(0), 0.25);
  EXPECT_THAT(*read_file(path("out/README.md"), 1 << 20),
              HasSubstr("pipeline_tag: image-classification"));
}

TEST_F(ImageExportTest, WritesAFolderForTimm) {
  const CommandResult result = export_to("out", "timm");
  ASSERT_EQ(result.code, 0) << result.err;
  const auto file = checkpoint::SafetensorsFile::open(path("out/model.safetensors"));
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  for (const char* const name : {"cls_token", "blocks.0.attn.qkv.weight", "head.bias"})
    EXPECT_NE((*file)->find(name), nullptr) << name;
  const auto config = object("out/config.json");
  EXPECT_EQ(config.at("num_classes"), 3);
  EXPECT_EQ(config.at("model_args").at("img_size"), 4);
  EXPECT_EQ(config.at("pretrained_cfg").at("crop_pct"), 0.5) << "that of the evaluation";
  EXPECT_EQ(config.at("pretrained_cfg").at("interpolation"), "bicubic");
  EXPECT_EQ(config.at("pretrained_cfg").at("mean").at(1), 0.5);
  EXPECT_FALSE(std::filesystem::exists(path("out/preprocessor_config.json")));
  EXPECT_THAT(*read_file(path("out/README.md"), 1 << 20), HasSubstr("library_name: timm"));
  ASSERT_EQ(ctl({"export", "200", "--format", "torch", "--output", path("out.pt")}).code, 0);
}

// For a base without transforms: the images have the size of the model.
TEST_F(ImageExportTest, SqueezesImagesThatWereNotCropped) {
  write_file(
      layout().config_file(),
      "data:\n  train: {format: image_folder, path: a, transforms: [resize: {size: [4, 4]}]}\n"
      "task: {name: classification}\nmodel: {name: " +
          std::string(kVit) + "}\n");
  ASSERT_EQ(export_to("out", "huggingface").code, 0);
  const auto preprocessor = object("out/preprocessor_config.json");
  EXPECT_EQ(preprocessor.at("size").at("height"), 4);
  EXPECT_EQ(preprocessor.at("do_center_crop"), false);
}

// The names of an adapter are those of torchvision.
TEST_F(ImageExportTest, RejectsAnAdapterForAModelOfTransformers) {
  std::filesystem::create_directory(path("base"));
  write_file(
      path("base/config.json"),
      R"({"model_type": "vit", "num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 4,
                 "intermediate_size": 6, "image_size": 4, "patch_size": 2, "layer_norm_eps": 1e-6})");
  write_run(std::string(kVit) + ", pretrained: {path: " + path("base") +
            "}, lora: {target_modules: [mlp.0]}");
  ASSERT_NO_FATAL_FAILURE(
      commit_adapter({"encoder.layers.encoder_layer_0.mlp.0.lora_A.weight", DType::kF32, {1, 4}}));
  const CommandResult result = ctl({"export", "300", "--output", path("out")});
  EXPECT_NE(result.code, 0);
  EXPECT_THAT(result.err, HasSubstr("which is of transformers or timm; export the complete model"));
  EXPECT_FALSE(std::filesystem::exists(path("out")));
  std::filesystem::remove(path("base/config.json"));
  write_run(kVit);
  const CommandResult exported = ctl({"export", "300", "--output", path("out")});
  EXPECT_EQ(exported.code, 0) << "of a file of torchvision";
  EXPECT_THAT(exported.err, Not(HasSubstr("twice")));
}

TEST_F(ImageExportTest, WarnsIfPeftAppliesAnAdapterTwice) {
  ASSERT_NO_FATAL_FAILURE(
      commit_adapter({"encoder.layers.encoder_layer_0.self_attention.out_proj.lora_B.weight",
                      DType::kF32,
                      {4, 1}}));
  const CommandResult result = ctl({"export", "300", "--output", path("out")});
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.err,
              HasSubstr("PEFT 0.21 applies the adapter of self_attention.out_proj twice"));
}

TEST_F(ImageExportTest, RejectsOtherSettingsAndModels) {
  for (const auto& [model, message] : std::map<std::string, std::string>{
           {"vit, patch_size: 2, num_layers: 2, num_heads: 2, hidden_dim: 4, mlp_dim: 6",
            "the checkpoint has no encoder.layers.encoder_layer_1."},
           {std::string(kVit) + ", layer_norm_eps: 1.0e-12",
            "timm's vit has model.layer_norm_eps 1e-06, not 1e-12"},
           {"resnet50", "the checkpoint has the tensors of another model"},
           {"vgg11", "model vgg11 has no timm format"}}) {
    write_run(model);
    const CommandResult result = export_to("out", "timm");
    EXPECT_NE(result.code, 0) << model;
    EXPECT_THAT(result.err, HasSubstr(message)) << model;
    EXPECT_FALSE(std::filesystem::exists(path("out")));
  }
}

TEST_F(HuggingFaceExportTest, WritesAFolderThatAllCanRead) {
  using std::filesystem::perms;
  const mode_t before = ::umask(022);
  const CommandResult result = export_to("out//");
  ::umask(before);
  ASSERT_EQ(result.code, 0) << result.err;
  const auto mode_of = [&](const std::string& name) {
    return std::filesystem::status(path(name)).permissions() & perms::mask;
  };
  EXPECT_EQ(mode_of("out"), perms(0755));
  for (const char* const name :
       {"config.json", "generation_config.json", "README.md", "model.safetensors"})
    EXPECT_EQ(mode_of(std::string("out/") + name), perms(0644)) << name;
}

TEST_F(HuggingFaceExportTest, RequiresANameForTheFolder) {
  const auto error_of = [&](const std::string& output) {
    return ctl({"export", "200", "--format", "huggingface", "--output", output}).err;
  };
  EXPECT_THAT(error_of(""), HasSubstr("must not be empty"));
  EXPECT_THAT(error_of("/"), HasSubstr("the folder has no name"));
}

TEST_F(HuggingFaceExportTest, WritesAveragedWeights) {
  ASSERT_EQ(export_to("averaged", "ema").code, 0);
  EXPECT_EQ(first_after_transposition("averaged"), 0);
  EXPECT_THAT(*read_file(path("averaged/README.md"), 1 << 20), HasSubstr("weights: averaged"));
}

TEST_F(HuggingFaceExportTest, WritesTheBestCheckpoint) {
  write_best(200, 1, sha256_hex(*read_file(file(200, "manifest.json"), 1 << 20)));
  write_checkpoint(300);
  ASSERT_EQ(ctl({"export", "best", "--format", "huggingface", "--output", path("best")}).code, 0);
  EXPECT_THAT(*read_file(path("best/README.md"), 1 << 20), HasSubstr("200"));
}

TEST_F(HuggingFaceExportTest, LeavesNothingBehindOnError) {
  const auto num_entries = [&] {
    return std::ranges::distance(std::filesystem::directory_iterator(root_.path()));
  };
  const auto before = num_entries();
  EXPECT_THAT(export_to("out", "optimizer").err, HasSubstr("use it with --include model or ema"));
  flip_bit(file(200, "optimizer.safetensors"));
  EXPECT_THAT(export_to("out").err, HasSubstr("optimizer.safetensors: SHA-256"));
  write_run("gpt");
  EXPECT_THAT(export_to("out").err, HasSubstr("model gpt has no Hugging Face format"));
  EXPECT_EQ(num_entries(), before);
  write_file(path("out"), "content");
  write_run("gpt2");
  EXPECT_THAT(export_to("out").err, HasSubstr("already exists"));
  EXPECT_EQ(*read_file(path("out"), 100), "content");
}

TEST_F(CheckpointCommandsTest, ExportRejectsCorruptCheckpointAndExistingOutput) {
  write_checkpoint(200);
  write_file(path("existing"), "content");
  const CommandResult existing = ctl({"export", "200", "--output", path("existing")});
  EXPECT_EQ(existing.code, 74);
  EXPECT_THAT(existing.err, HasSubstr("already exists"));
  EXPECT_EQ(*read_file(path("existing"), 100), "content");
  flip_bit(file(200, "optimizer.safetensors"));
  const CommandResult corrupt = ctl({"export", "200", "--output", path("new")});
  EXPECT_EQ(corrupt.code, 65);
  EXPECT_THAT(corrupt.err, HasSubstr("optimizer.safetensors: SHA-256"));
  EXPECT_FALSE(std::filesystem::exists(path("new")));
  EXPECT_EQ(ctl({"export", "300", "--output", path("new")}).code, 78);
}

TEST(CtlProgressLineTest, AppearsOnTerminalAfterDelayAndIsErased) {
  std::ostringstream out, err;
  const Console console{.out = out, .err = err, .style = kTerminal};
  ManualClock clock;
  {
    Progress progress(console, clock, "verifying", 2'000'000);
    progress.add(100);
    EXPECT_EQ(out.str(), "");
    clock.advance(1s);
    progress.add(999'900);
    EXPECT_THAT(out.str(), HasSubstr("verifying: 50 % of 2.00 MB, 1.00 MB/s"));
    const size_t drawn = out.str().size();
    progress.add(1);  // too soon to redraw
    EXPECT_EQ(out.str().size(), drawn);
  }
  EXPECT_TRUE(out.str().ends_with("\r\x1b[K"));
  EXPECT_EQ(err.str(), "");
}

TEST(CtlProgressLineTest, IsAbsentWithoutTerminal) {
  std::ostringstream out, err;
  const Console console{.out = out, .err = err, .style = kPiped};
  ManualClock clock;
  {
    Progress progress(console, clock, "verifying", 100);
    clock.advance(10s);
    progress.add(50);
  }
  EXPECT_EQ(out.str() + err.str(), "");
}

using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DiffCommandTest : public CtlTest {
 protected:
  struct Tensor {
    std::string name;
    std::vector<float> values;
  };
  void write_checkpoint(uint64_t step, const std::vector<Tensor>& tensors) {
    std::filesystem::create_directories(layout().checkpoints_dir());
    checkpoint::CheckpointContent content;
    content.manifest.step = step;
    content.manifest.live_settings = "{}";
    for (const Tensor& tensor : tensors) {
      content.model.push_back({.spec = {.name = tensor.name,
                                        .dtype = DType::kF32,
                                        .shape = {static_cast<int64_t>(tensor.values.size())}},
                               .bytes = std::as_bytes(std::span(tensor.values))});
    }
    checkpoint::CheckpointStore store(layout().checkpoints_dir(), default_file_system());
    const auto committed = store.commit(content);
    ASSERT_TRUE(committed.ok()) << committed.status().to_string();
  }
  boost::json::value diff_as_json(const std::string& from, const std::string& to) {
    const CommandResult result = ctl({"--json", "diff", from, to});
    EXPECT_EQ(result.code, 0) << result.err;
    return boost::json::parse(result.out);
  }
};

TEST_F(DiffCommandTest, SortsTensorsByRelativeChange) {
  write_checkpoint(10, {{"still", {1, 2}}, {"a_little", {4, 3, 0, 0}}, {"much", {1, 1}}});
  write_checkpoint(20, {{"still", {1, 2}}, {"a_little", {4, 3.5, 0, 0}}, {"much", {3, 1}}});
  const CommandResult result = ctl({"diff", "10", "20"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out,
              HasSubstr("step 10 to step 20: 25.0 % of 8 elements changed, in 3 tensors"));
  const size_t much = result.out.find("much F32 [2]");
  const size_t little = result.out.find("a_little F32 [4]");
  const size_t still = result.out.find("still F32 [2]");
  EXPECT_LT(much, little);
  EXPECT_LT(little, still);
  EXPECT_NE(still, std::string::npos);
  EXPECT_LE(widest_line(result.out), 80u);
}

TEST_F(DiffCommandTest, ComputesChangeMetricsFromElements) {
  write_checkpoint(10, {{"w", {4, 3, 0, 0}}});
  write_checkpoint(20, {{"w", {4, 3, 0, 5}}});
  const auto tensor = diff_as_json("10", "20").at("tensors").at(0);
  EXPECT_EQ(tensor.at("changed").to_number<int>(), 1);
  EXPECT_DOUBLE_EQ(tensor.at("rms_before").to_number<double>(), 2.5);
  EXPECT_DOUBLE_EQ(tensor.at("rms_change").to_number<double>(), 2.5);
  EXPECT_DOUBLE_EQ(tensor.at("relative_change").to_number<double>(), 1.0);
  EXPECT_DOUBLE_EQ(tensor.at("largest_change").to_number<double>(), 5.0);
}

TEST_F(DiffCommandTest, CountsChangeOfSign) {
  write_checkpoint(10, {{"w", {4, -3, 1}}});
  write_checkpoint(20, {{"w", {-4, 3, 1}}});
  const auto tensor = diff_as_json("10", "20").at("tensors").at(0);
  EXPECT_EQ(tensor.at("changed").to_number<int>(), 2);
  EXPECT_DOUBLE_EQ(tensor.at("largest_change").to_number<double>(), 8.0);
}

TEST_F(DiffCommandTest, ListsTensorsWithoutMatchOrOfDifferentShape) {
  write_checkpoint(10, {{"head", {1, 2}}, {"old", {1}}});
  write_checkpoint(20, {{"head", {1, 2, 3}}, {"new", {1}}});
  const CommandResult result = ctl({"diff", "10", "20"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("only before: head F32 [2]\nonly before: old F32 [1]\n"));
  EXPECT_THAT(result.out, HasSubstr("only after:  head F32 [3]\nonly after:  new F32 [1]\n"));
}

TEST_F(DiffCommandTest, CountsAndIgnoresNonfiniteElements) {
  const float infinity = std::numeric_limits<float>::infinity();
  write_checkpoint(10, {{"w", {1, 1, 1}}});
  write_checkpoint(20, {{"w", {1, infinity, 1}}});
  EXPECT_EQ(diff_as_json("10", "20").at("tensors").at(0).at("num_nonfinite").to_number<int>(), 1);
  EXPECT_EQ(diff_as_json("10", "20").at("tensors").at(0).at("changed").to_number<int>(), 0);
  EXPECT_THAT(ctl({"diff", "10", "20"}).out, HasSubstr("1 elements are nonfinite"));
}

TEST_F(DiffCommandTest, ShowsTwentyTensorsUnlessAllRequested) {
  std::vector<Tensor> tensors;
  for (int i = 0; i < 30; ++i) tensors.push_back({"t" + std::to_string(i), {1.0f}});
  write_checkpoint(10, tensors);
  write_checkpoint(20, tensors);
  EXPECT_THAT(ctl({"diff", "10", "20"}).out, HasSubstr("and 10 with smaller changes (use --all"));
  EXPECT_THAT(ctl({"diff", "10", "20", "--all"}).out, HasSubstr("t29 F32 [1]"));
}

TEST_F(DiffCommandTest, ReportsExistingStepsAndCorruptFiles) {
  write_checkpoint(10, {{"w", {1}}});
  const CommandResult missing = ctl({"diff", "10", "20"});
  EXPECT_EQ(missing.code, 78);
  EXPECT_THAT(missing.err, HasSubstr("no checkpoint of step 20; available steps: 10"));
  write_checkpoint(20, {{"w", {1}}});
  std::ofstream(layout().checkpoints_dir() + "/step-000000020/model.safetensors", std::ios::app)
      << "x";
  const CommandResult corrupt = ctl({"diff", "10", "20"});
  EXPECT_EQ(corrupt.code, 65);
  EXPECT_THAT(corrupt.err, HasSubstr("model.safetensors"));
  EXPECT_EQ(ctl({"diff", "10"}).code, 64);
}

template <typename T, size_t kCount>
std::vector<double> numbers(DType dtype, const std::array<T, kCount>& values) {
  return to_doubles(dtype, std::as_bytes(std::span(values)));
}

TEST(TensorValuesTest, ConvertsEveryDataType) {
  EXPECT_THAT(numbers(DType::kU8, std::array<uint8_t, 2>{0, 255}), ElementsAre(0, 255));
  EXPECT_THAT(numbers(DType::kI8, std::array<int8_t, 2>{-128, 1}), ElementsAre(-128, 1));
  EXPECT_THAT(numbers(DType::kU16, std::array<uint16_t, 1>{65535}), ElementsAre(65535));
  EXPECT_THAT(numbers(DType::kI64, std::array<int64_t, 1>{-5}), ElementsAre(-5));
  EXPECT_THAT(numbers(DType::kF64, std::array<double, 1>{0.1}), ElementsAre(0.1));
  // 1, -2, the largest value, the smallest above 0, and 1/3 rounded to half precision.
  EXPECT_THAT(numbers(DType::kF16, std::array<uint16_t, 5>{0x3c00, 0xc000, 0x7bff, 0x0001, 0x3555}),
              ElementsAre(1, -2, 65504, 0x1p-24, 0.333251953125));
  EXPECT_THAT(numbers(DType::kBF16, std::array<uint16_t, 2>{0x3f80, 0xc2f7}),
              ElementsAre(1, -123.5));
}

}  // namespace
}  // namespace stoker::ctl
