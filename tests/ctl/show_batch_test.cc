#include <unistd.h>

#include <boost/json.hpp>

#include "shared/config/load_config.h"
#include "shared/data/dataset.h"
#include "shared/data/order/bucket_plan.h"
#include "shared/data/order/sample_plan.h"
#include "shared/data/pipeline/open_dataset.h"
#include "shared/data/transform/batch_transforms.h"
#include "shared/feed/make_sample_plan.h"
#include "tests/ctl/run_fixture.h"

namespace stoker::ctl {
namespace {

using ::testing::HasSubstr;

class ShowBatchCommandTest : public CtlTest {
 protected:
  static constexpr uint64_t kBatch = 4, kAccumulate = 2;

  // Writes what stokerd writes at its start: the configuration and the index.
  void start_run() {
    for (int i = 0; i < 9; ++i)
      write_file(path("corpus/file" + std::to_string(i) + ".txt"), std::string(100, 'a'));
    start_run_with("data:\n  train: {format: text, path: " + path("corpus") +
                   ", sequence: {block_size: 16}}\n");
  }
  void start_run_with(const std::string& datasets) {
    const auto config = config::parse_config(
        datasets +
            "train: {max_steps: 10, micro_batch_size: 4, gradient_accumulation_steps: 2}\n"
            "model: {name: gpt, context_length: 16}\n",
        "test", {});
    ASSERT_TRUE(config.ok()) << config.status().to_string();
    config_ = *config;
    write_file(layout().config_file(), config::to_yaml(config_));
    auto data = data::pipeline::open_dataset("train", config_.data, layout().index_dir(), {});
    ASSERT_TRUE(data.ok()) << data.status().to_string();
    data_ = *std::move(data);
  }
  boost::json::array show_batch(uint64_t step) {
    const CommandResult result = ctl({"--json", "show-batch", std::to_string(step)});
    EXPECT_EQ(result.code, 0) << result.err;
    return boost::json::parse(result.out).at("samples").as_array();
  }
  static uint64_t number(const boost::json::value& sample, const char* name) {
    return sample.at(name).to_number<uint64_t>();
  }

  config::Config config_;
  std::unique_ptr<data::Dataset> data_;
};

TEST_F(ShowBatchCommandTest, ListsSamplesThatWorkersRead) {
  start_run();
  const data::order::SamplePlan plan(*feed::make_plan_options(config_, *data_, {}));
  const auto samples = show_batch(3);
  ASSERT_EQ(samples.size(), kBatch * kAccumulate);
  for (size_t i = 0; i < samples.size(); ++i) {
    const uint64_t ticket = 2 * kAccumulate + i / kBatch;
    const auto planned = plan.at(ticket, i % kBatch);
    EXPECT_EQ(number(samples[i], "ticket"), ticket);
    EXPECT_EQ(number(samples[i], "row"), i % kBatch);
    EXPECT_EQ(number(samples[i], "sample"), planned.sample);
    EXPECT_EQ(number(samples[i], "epoch"), planned.epoch);
    const auto source = data_->source(planned.sample);
    EXPECT_EQ(samples[i].at("path").as_string(), source.file);
    EXPECT_EQ(number(samples[i], "offset"), source.offset);
  }
}

TEST_F(ShowBatchCommandTest, ReportsMixupParametersOfBatch) {
  const auto config = config::parse_config(
      "data:\n  train: {format: synthetic, num_samples: 40, input_shape: [6], num_classes: 3,\n"
      "    batch_transforms: [mixup: {alpha: 0.2}]}\n"
      "task: {name: classification}\nmodel: {name: mlp}\n"
      "train: {max_steps: 10, micro_batch_size: 4, gradient_accumulation_steps: 2}\n",
      "test", {});
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  write_file(layout().config_file(), config::to_yaml(*config));
  ASSERT_TRUE(data::pipeline::open_dataset("train", config->data, layout().index_dir(), {}).ok());
  for (const auto& sample : show_batch(3)) {
    const auto mix = data::transform::sample_mix({.mixup = 0.2}, 1, number(sample, "ticket"));
    EXPECT_EQ(sample.at("transforms").as_string(),
              data::transform::describe(mix, number(sample, "row"), 4));
  }
}

TEST_F(ShowBatchCommandTest, ReportsSequenceLengthsAndPadding) {
  std::string lines;
  for (size_t i = 0; i < 40; ++i) lines += "{\"t\": \"" + std::string(1 + i % 11, 'a') + "\"}\n";
  write_file(path("texts.jsonl"), lines);
  start_run_with(
      "data:\n  train: {format: jsonl, path: " + path("texts.jsonl") +
      ", fields: {text: t}, sequence: {max_length: 12}}\nfeed: {bucket_boundaries: [4, 8]}\n");
  const data::order::SamplePlan plan(*feed::make_plan_options(config_, *data_, {}));
  const auto& buckets = plan.options().maybe_buckets->buckets();
  for (const uint64_t step : {1, 7, 1'000'000'000}) {
    for (const auto& sample : show_batch(step)) {
      const uint64_t ticket = number(sample, "ticket");
      EXPECT_EQ(number(sample, "sample"), plan.at(ticket, number(sample, "row")).sample);
      EXPECT_EQ(number(sample, "length"), number(sample, "sample") % 11 + 2) << "with its end";
      EXPECT_EQ(number(sample, "padded_to"), buckets[plan.bucket_of(ticket)].length);
    }
  }
  const CommandResult result = ctl({"show-batch", "1"});
  EXPECT_THAT(result.out, HasSubstr("% padding"));
  EXPECT_THAT(result.out, HasSubstr(" of " + std::to_string(buckets[plan.bucket_of(0)].length)));
}

TEST_F(ShowBatchCommandTest, PrintsReadableTextWithFiles) {
  start_run();
  const CommandResult result = ctl({"show-batch", "1"});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("step 1 of 10: 8 of the "));
  EXPECT_THAT(result.out, HasSubstr(path("corpus/file")));
  EXPECT_THAT(ctl({"show-batch", "11"}).out, HasSubstr("ends before this step"));
}

TEST_F(ShowBatchCommandTest, WorksWithoutDataOrDaemonAndChangesNothing) {
  start_run();
  const auto before = show_batch(2);
  std::filesystem::remove_all(path("corpus/file3.txt"));
  write_file(path("corpus/new.txt"), std::string(1000, 'b'));
  const std::string index = *read_file(layout().index_dir() + "/train.index", 1 << 20);
  EXPECT_EQ(show_batch(2), before);
  EXPECT_EQ(*read_file(layout().index_dir() + "/train.index", 1 << 20), index);
}

TEST_F(ShowBatchCommandTest, ChoosesSameReplacementsAsWorkers) {
  start_run();
  const data::order::SamplePlan plan(*feed::make_plan_options(config_, *data_, {}));
  const uint64_t first = plan.at(0, 1).sample;
  const uint64_t second = plan.replacement(0, 1, 1).sample;
  std::string lines;
  for (const uint64_t sample : {first, second})
    lines += "{\"ticket\":0,\"sample\":" + std::to_string(sample) + ",\"path\":\"f\"}\n";
  // The same ticket, recorded while the run had another batch size.
  lines += "{\"step\":7,\"ticket\":0,\"sample\":" + std::to_string(plan.at(0, 0).sample) + "}\n";
  write_file(layout().sample_errors_file(), lines);
  const auto samples = show_batch(1);
  EXPECT_EQ(number(samples[1], "sample"), plan.replacement(0, 1, 2).sample);
  EXPECT_EQ(number(samples[1], "replaces"), first);
  EXPECT_EQ(samples[0].as_object().count("replaces"), 0u);
}

TEST_F(ShowBatchCommandTest, ReportsMixtureDatasetAndItsEpoch) {
  write_file(path("code.h"), std::string(160, 'c'));
  write_file(path("prose.txt"), std::string(64, 'p'));
  start_run_with(
      "data:\n  train: {mixture: {code: 1, prose: 1}}\n"
      "  code: {format: text, path: " +
      path("code.h") +
      ", sequence: {block_size: 16}}\n"
      "  prose: {format: text, path: " +
      path("prose.txt") + ", sequence: {block_size: 16}}\n");
  const data::order::SamplePlan plan(*feed::make_plan_options(config_, *data_, {}));
  uint64_t of_prose = 0;
  for (const uint64_t step : {1, 5, 1'000'000'000}) {
    const auto samples = show_batch(step);
    for (size_t i = 0; i < samples.size(); ++i) {
      const auto planned = plan.at((step - 1) * kAccumulate + i / kBatch, i % kBatch);
      EXPECT_EQ(number(samples[i], "sample"), planned.sample);
      EXPECT_EQ(number(samples[i], "dataset_epoch"), planned.dataset_epoch);
      const bool is_prose = planned.sample >= 9;
      EXPECT_EQ(samples[i].at("dataset").as_string(), is_prose ? "prose" : "code");
      EXPECT_EQ(samples[i].at("path").as_string(), path(is_prose ? "prose.txt" : "code.h"));
      of_prose += is_prose;
    }
  }
  EXPECT_EQ(of_prose, 12u) << "half of each batch";
  EXPECT_THAT(ctl({"show-batch", "1"}).out, HasSubstr("sample  dataset"));
}

TEST_F(ShowBatchCommandTest, UsesSampleWeightsInEffectAtEachStep) {
  start_run();
  config_.data["train"].sample_weights_path = path("weights.txt");
  write_file(layout().config_file(), config::to_yaml(config_));
  const auto only = [this](uint64_t sample) {
    std::vector<double> weights(data_->size());
    weights[sample] = 1;
    return feed::SampleWeights{{"train", weights}};
  };
  ASSERT_TRUE(feed::snapshot_sample_weights(only(3), layout().index_dir(), 0).ok());
  ASSERT_TRUE(feed::snapshot_sample_weights(only(7), layout().index_dir(), 4 * kAccumulate).ok());
  for (const auto& sample : show_batch(4)) EXPECT_EQ(number(sample, "sample"), 3u);
  for (const auto& sample : show_batch(5)) EXPECT_EQ(number(sample, "sample"), 7u);
  EXPECT_THAT(ctl({"show-batch", "1"}).out, HasSubstr(path("corpus/file")));
}

// The run of another user chooses the images, and whether they are read in this process.
TEST_F(ShowBatchCommandTest, ReadsImagesThatAnotherUserChoosesInWorkerProcess) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file to another user";
  static const std::string kPng(  // 2 x 2 gray pixels
      "\211\120\116\107\015\012\032\012\000\000\000\015\111\110\104\122\000\000\000\002\000"
      "\000\000\002\010\000\000\000\000\127\335\122\370\000\000\000\016\111\104\101\124\170"
      "\234\143\140\144\142\140\146\001\000\000\035\000\013\015\265\122\006\000\000\000\000"
      "\111\105\116\104\256\102\140\202",
      71);
  for (const char* const name : {"images/a/1.png", "images/b/1.png"}) write_file(path(name), kPng);
  const auto config = config::parse_config(
      "data:\n  train: {format: image_folder, path: " + path("images") +
          ", transforms: [{random_resized_crop: {size: [2, 2]}}]}\n"
          "feed: {num_processes: 0}\ntask: {name: classification}\nmodel: {name: mlp}\n"
          "train: {max_steps: 10, micro_batch_size: 2}\n",
      "test", {});
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  write_file(layout().config_file(), config::to_yaml(*config));
  ASSERT_TRUE(data::pipeline::open_dataset("train", config->data, layout().index_dir(), {}).ok());
  EXPECT_EQ(ctl({"show-batch", "1"}).code, 0);
  ASSERT_EQ(::chown(layout().config_file().c_str(), 4242, 4242), 0);
  // Which the tests do not have next to them.
  EXPECT_THAT(ctl({"show-batch", "1"}).err, HasSubstr("stoker-feed is neither in"));
}

TEST_F(ShowBatchCommandTest, ReportsMissingIndexOrInvalidConfig) {
  write_file(
      layout().config_file(),
      "data: {train: {format: text, path: x, sequence: {block_size: 4}}}\nmodel: {name: gpt}\n");
  const CommandResult no_index = ctl({"show-batch", "1"});
  EXPECT_EQ(no_index.code, 78);
  EXPECT_THAT(no_index.err, HasSubstr("train.index: no index yet"));
  write_file(layout().config_file(), "data: {train: {format: text, pth: x}}\n");
  const CommandResult bad_config = ctl({"show-batch", "1"});
  EXPECT_EQ(bad_config.code, 78);
  EXPECT_THAT(bad_config.err, HasSubstr("config.yaml:1"));
  std::filesystem::remove(layout().config_file());
  EXPECT_EQ(ctl({"show-batch", "1"}).code, 78);
}

TEST_F(ShowBatchCommandTest, RejectsCorruptIndexAndOutOfRangeStep) {
  start_run();
  const CommandResult out_of_range = ctl({"show-batch", "900000000000000000"});
  EXPECT_EQ(out_of_range.code, 78);
  EXPECT_THAT(out_of_range.err, HasSubstr("is beyond the largest possible sample plan"));
  write_file(layout().index_dir() + "/train.index", "not an index");
  const CommandResult corrupt = ctl({"show-batch", "1"});
  EXPECT_EQ(corrupt.code, 74);
  EXPECT_THAT(corrupt.err, HasSubstr("train.index"));
}

}  // namespace
}  // namespace stoker::ctl
