#include "daemon/app/resume_compatibility.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stoker::app {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr ChangeKind kAll[] = {ChangeKind::kModel, ChangeKind::kData, ChangeKind::kBatch,
                               ChangeKind::kWorldSize};

Status judged(const config::Config& before, const config::Config& now,
              const AllowedChanges& allowed = {}) {
  ResumeCompatibility changes;
  changes.add_config(before, now);
  return changes.check(allowed);
}

std::string error_of(const config::Config& before, const config::Config& now) {
  const Status status = judged(before, now);
  EXPECT_EQ(status.code(), StatusCode::kMismatch);
  return status.message();
}

config::DatasetConfig text(const std::string& path) {
  return {.source = config::TextDataset{.path = path}};
}

config::Config of_text() {
  config::Config config;
  config.data["train"] = text("corpus.txt");
  return config;
}

config::Config mixed() {
  config::Config config;
  config.data["train"].source = config::Concat{{"code", "prose"}};
  for (const char* const name : {"code", "prose", "val"}) config.data[name] = text(name);
  return config;
}

TEST(ResumeCompatibilityTest, RejectsIncompatibleSettingsAndAllowsOthers) {
  const config::Config before = of_text();
  config::Config now = before;
  auto& gpt = std::get<config::GptConfig>(now.model.arch);
  now.train.max_steps = before.train.max_steps * 2;
  now.checkpoint.save_every_steps = 7;
  now.model.pretrained = config::PretrainedConfig{.path = "weights.safetensors"};
  gpt.activation_checkpointing = true;
  now.train.ema_decay = 0.999;
  now.data["train"] = text("moved/corpus.txt");
  EXPECT_TRUE(judged(before, now).ok()) << judged(before, now).message();
  now.train.micro_batch_size = 999;
  gpt.embed_dim = 384;
  const std::string rejected = error_of(before, now);
  EXPECT_THAT(rejected, HasSubstr("train.micro_batch_size: 16 -> 999"));
  EXPECT_THAT(rejected, HasSubstr("model.embed_dim: 192 -> 384"));
  EXPECT_THAT(rejected, HasSubstr("--fresh"));
}

TEST(ResumeCompatibilityTest, AllowsImageCacheChange) {
  config::Config before;
  config::ImageFolderDataset images{.path = "images", .transforms = {config::Resize{{32, 32}}}};
  before.data["train"].source = images;
  config::Config now = before;
  images.cache = config::CacheConfig{};
  now.data["train"].source = images;
  EXPECT_TRUE(judged(before, now).ok()) << judged(before, now).message();
  images.transforms = {config::Resize{{36}}, config::CenterCrop{{32, 32}}};
  now.data["train"].source = images;
  EXPECT_THAT(error_of(before, now), HasSubstr("data.train.transforms: [resize: {size: [32, 32], "
                                               "interpolation: bilinear}] -> [resize: "));
}

TEST(ResumeCompatibilityTest, RejectsSampleOrderChange) {
  config::Config before = mixed();
  before.feed.shuffle = config::ShuffleMode::kBlock;
  config::Config now = before;
  now.feed.shuffle_block_size = 77;
  EXPECT_THAT(error_of(before, now), HasSubstr("feed.shuffle_block_size: 10000 -> 77"));
  now = before;
  now.feed.last_batch = config::LastBatchPolicy::kDrop;
  EXPECT_THAT(error_of(before, now), HasSubstr("feed.last_batch: carry_over -> drop"));
  now = before;
  now.feed.shuffle = config::ShuffleMode::kShards;
  EXPECT_THAT(error_of(before, now), HasSubstr("feed.shuffle: block -> shards"));
}

TEST(ResumeCompatibilityTest, RejectsMixtureDatasetChangeAndAllowsOtherDatasets) {
  const config::Config before = mixed();
  config::Config now = before;
  now.data["code"] = text("moved");
  now.data["val"].max_samples = 5;
  now.data["more"] = text("more");
  EXPECT_TRUE(judged(before, now).ok()) << judged(before, now).message();
  now.data["prose"].repeat = 2;
  EXPECT_THAT(error_of(before, now), HasSubstr("data.prose.repeat: 1 -> 2"));
  now = before;
  now.data["train"].source = config::Concat{{"code"}};
  EXPECT_THAT(error_of(before, now), HasSubstr("data.train.concat: [code, prose] -> [code]"));
  now = before;
  now.data["train"].source = config::Mixture{{{"code", 1}, {"prose", 2}}};
  EXPECT_THAT(error_of(before, now),
              HasSubstr("data.train.mixture: (unset) -> {code: 1, prose: 2}"));
}

// Each kind of change is rejected with the name of its flag, and only that flag allows it.
TEST(ResumeCompatibilityTest, AllowsEachChangeKindByItsFlagOnly) {
  for (const ChangeKind change : kAll) {
    ResumeCompatibility changes;
    changes.add(change, "key: 1 -> 2");
    EXPECT_TRUE(changes.has(change));
    const Status rejected = changes.check({});
    EXPECT_EQ(rejected.code(), StatusCode::kMismatch);
    EXPECT_THAT(rejected.message(),
                HasSubstr(std::string(allow_flag(change)) + " continues with it, but"));
    EXPECT_THAT(rejected.message(), HasSubstr("key: 1 -> 2"));
    for (const ChangeKind other : kAll) {
      AllowedChanges allowed;
      allowed[other] = true;
      EXPECT_EQ(changes.check(allowed).ok(), other == change) << allow_flag(other);
      EXPECT_EQ(rejected.message().find(allow_flag(other)) != std::string::npos, other == change);
    }
  }
}

TEST(ResumeCompatibilityTest, RequiresMatchingFlagForEachChangedSetting) {
  const config::Config before = of_text();
  const auto needs = [&](const ChangeKind change, const auto& set) {
    config::Config now = before;
    set(now);
    AllowedChanges allowed;
    EXPECT_FALSE(judged(before, now, allowed).ok());
    allowed[change] = true;
    EXPECT_TRUE(judged(before, now, allowed).ok()) << judged(before, now, allowed).message();
  };
  needs(ChangeKind::kModel,
        [](config::Config& now) { now.model.arch = config::GptConfig{.num_layers = 7}; });
  needs(ChangeKind::kModel, [](config::Config& now) { now.task.task = config::RegressionTask{}; });
  needs(ChangeKind::kData, [](config::Config& now) { now.run.seed = 7; });
  needs(ChangeKind::kData, [](config::Config& now) { now.data["train"].split = {0, 0.5}; });
  needs(ChangeKind::kData,
        [](config::Config& now) { now.feed.shuffle = config::ShuffleMode::kNone; });
  needs(ChangeKind::kBatch, [](config::Config& now) { now.train.micro_batch_size = 7; });
  needs(ChangeKind::kBatch, [](config::Config& now) { now.train.gradient_accumulation_steps = 7; });
}

TEST(ResumeCompatibilityTest, DetectsModelFileChangeByHashRegardlessOfPath) {
  config::Config before = of_text();
  before.model.arch = config::PluginConfig{.path = "one.so"};
  config::Config moved = before;
  moved.model.arch = config::PluginConfig{.path = "two.so"};
  EXPECT_TRUE(judged(before, moved).ok()) << judged(before, moved).message();
  moved.model.arch = config::PluginConfig{.path = "two.so", .args = R"({"width": 8})"};
  EXPECT_THAT(error_of(before, moved), HasSubstr(R"(model.args: {} -> {"width": 8})"));

  checkpoint::Manifest saved, now;
  saved.model_file = std::string(64, 'a');
  now.model_file = std::string(64, 'b');
  ResumeCompatibility changes;
  changes.add_manifest(saved, now);
  EXPECT_THAT(changes.check({}).message(),
              AllOf(HasSubstr("model.path: sum of the file aaaaaaaaaaaa -> bbbbbbbbbbbb"),
                    HasSubstr("--allow-model-change")));
  saved.model_file.clear();
  ResumeCompatibility of_before;
  of_before.add_manifest(saved, now);
  EXPECT_FALSE(of_before.any()) << "an earlier release did not say";
}

TEST(ResumeCompatibilityTest, DetectsModelTensorChangeByDigest) {
  checkpoint::Manifest saved, now;
  saved.model_digest = "one";
  now.model_digest = "two";
  ResumeCompatibility changes;
  changes.add_model(saved, now);
  EXPECT_THAT(changes.check({}).message(),
              HasSubstr("the model: names, shapes or order of its tensors one -> two"));
  ResumeCompatibility known;
  known.add(ChangeKind::kModel, "model.embed_dim: 8 -> 9");
  known.add_model(saved, now);
  EXPECT_THAT(known.check({}).message(), Not(HasSubstr("order of its tensors")));
  now.model_digest = saved.model_digest;
  ResumeCompatibility same;
  same.add_model(saved, now);
  EXPECT_FALSE(same.any());
}

TEST(ResumeCompatibilityTest, DetectsChangedRunByManifest) {
  checkpoint::Manifest saved;
  saved.data_digest = "one";
  saved.micro_batch_size = 16;
  saved.gradient_accumulation_steps = 1;
  saved.data_schema = DatasetSchema{.num_classes = 2, .num_samples = 100};
  const auto rejected_with = [&](const ChangeKind change, const std::string& said,
                                 const auto& set) {
    checkpoint::Manifest now = saved;
    set(now);
    ResumeCompatibility changes;
    changes.add_manifest(saved, now);
    EXPECT_TRUE(changes.has(change));
    EXPECT_THAT(changes.check({}).message(), HasSubstr(said));
    AllowedChanges allowed;
    allowed[change] = true;
    EXPECT_TRUE(changes.check(allowed).ok());
  };
  rejected_with(ChangeKind::kData, "fingerprint one -> two",
                [](auto& now) { now.data_digest = "two"; });
  rejected_with(ChangeKind::kData, "data.train: number of samples: 100 -> 98",
                [](auto& now) { now.data_schema->num_samples = 98; });
  rejected_with(ChangeKind::kBatch, "train.micro_batch_size: 16 -> 8",
                [](auto& now) { now.micro_batch_size = 8; });
  rejected_with(ChangeKind::kBatch, "train.gradient_accumulation_steps: 1 -> 4",
                [](auto& now) { now.gradient_accumulation_steps = 4; });
  rejected_with(ChangeKind::kWorldSize, "trainers: 1 -> 2", [](auto& now) { now.world_size = 2; });
  ResumeCompatibility none;
  none.add_manifest(saved, saved);
  EXPECT_FALSE(none.any());
}

// Such a run would train on from random weights.
TEST(ResumeCompatibilityTest, RejectsAddedOrRemovedAdapterWhateverIsAllowed) {
  checkpoint::Manifest plain, adapter;
  adapter.base_weights = checkpoint::BaseWeights{.path = "a", .sha256 = "1", .r = 1};
  AllowedChanges all;
  for (const ChangeKind kind : kAll) all[kind] = true;
  const auto check = [&](const checkpoint::Manifest& saved, const checkpoint::Manifest& now) {
    ResumeCompatibility changes;
    changes.add_manifest(saved, now);
    return changes.check(all);
  };
  EXPECT_TRUE(check(adapter, adapter).ok());
  EXPECT_TRUE(check(plain, plain).ok());
  for (const Status& status : {check(adapter, plain), check(plain, adapter)}) {
    EXPECT_EQ(status.code(), StatusCode::kMismatch);
    EXPECT_THAT(status.message(), HasSubstr("model.lora was added to the run or removed from it"));
  }
}

TEST(ResumeCompatibilityTest, IgnoresFieldsMissingFromManifest) {
  checkpoint::Manifest now;
  now.micro_batch_size = 16;
  now.gradient_accumulation_steps = 2;
  ResumeCompatibility changes;
  now.data_schema = DatasetSchema{.num_classes = 3, .num_samples = 100};
  changes.add_manifest({}, now);
  checkpoint::Manifest saved = now;
  saved.data_schema->num_samples = 0;
  changes.add_manifest(saved, now);
  EXPECT_FALSE(changes.any());
}

TEST(ResumeCompatibilityTest, ReportsFirstFiveDifferencesAndCountsRest) {
  ResumeCompatibility changes;
  for (int i = 1; i <= 7; ++i) changes.add(ChangeKind::kModel, "key" + std::to_string(i));
  changes.add(ChangeKind::kModel, "key1");  // duplicate
  const std::string rejected = changes.check({}).message();
  EXPECT_THAT(rejected, HasSubstr("key5"));
  EXPECT_THAT(rejected, Not(HasSubstr("key6")));
  EXPECT_THAT(rejected, HasSubstr("and 2 more"));
}

TEST(TicketAtTest, SkipsNoSampleAndRepeatsLessThanOneBatch) {
  for (uint64_t ticket = 0; ticket < 50; ++ticket) {
    for (uint64_t before = 1; before < 9; ++before) {
      for (uint64_t now = 1; now < 9; ++now) {
        const uint64_t done = ticket * before;
        const uint64_t from = ticket_at(ticket, before, now) * now;
        EXPECT_LE(from, done);
        EXPECT_LT(done - from, now);
      }
    }
  }
}

TEST(TicketAtTest, ReturnsTicketUnchangedWithoutBatchSizeAndNeverOverflows) {
  constexpr uint64_t kLargest = std::numeric_limits<uint64_t>::max();
  EXPECT_EQ(ticket_at(7, 0, 16), 7u);
  EXPECT_EQ(ticket_at(kLargest, kLargest, 1), kLargest);
  EXPECT_EQ(ticket_at(kLargest, 2, 4), kLargest / 2);
}

}  // namespace
}  // namespace stoker::app
