#include "shared/checkpoint/manifest.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stoker::checkpoint {
namespace {

using ::testing::HasSubstr;

const std::string kSha(64, 'a');

Manifest full() {
  Manifest manifest;
  manifest.step = 1200;
  manifest.epoch = 3;
  manifest.next_ticket = 4800;
  manifest.created_at = "2026-01-02T03:04:05Z";
  manifest.stoker_version = "stoker 0.1.0";
  manifest.torch_version = "2.11.0";
  manifest.model_digest = "m";
  manifest.config_digest = "c";
  manifest.data_digest = "d";
  manifest.files = {{"model.safetensors", 10, kSha}, {"trainer_state.safetensors", 0, kSha}};
  manifest.parent_checkpoint = "step-000001000";
  manifest.metrics_bytes = 77;
  manifest.live_settings = R"({"lr":1E-4})";
  return manifest;
}

std::string replaced(const std::string& from, const std::string& to) {
  std::string text = to_json(full());
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

void expect_corrupt(const std::string& text) {
  const auto parsed = parse_manifest(text, "run/manifest.json");
  ASSERT_FALSE(parsed.ok()) << text;
  EXPECT_EQ(parsed.status().code(), StatusCode::kCorrupt) << parsed.status().to_string();
  EXPECT_THAT(parsed.status().message(), HasSubstr("run/manifest.json"));
  EXPECT_EQ(parsed.status().message().find('\n'), std::string::npos);
}

TEST(ManifestTest, WritesOneLineOfJson) {
  EXPECT_EQ(
      to_json(full()),
      R"({"format":2,"step":1200,"epoch":3,"next_ticket":4800,"created_at":"2026-01-02T03:04:05Z",)"
      R"("stoker_version":"stoker 0.1.0","torch_version":"2.11.0","world_size":1,"model_digest":"m",)"
      R"("config_digest":"c","data_digest":"d","files":[{"name":"model.safetensors",)"
      R"("bytes":10,"sha256":")" +
          kSha + R"("},{"name":"trainer_state.safetensors","bytes":0,"sha256":")" + kSha +
          R"("}],"parent_checkpoint":"step-000001000","metrics_bytes":77,"live_settings":{"lr":1E-4}})" +
          "\n");
}

TEST(ManifestTest, RoundTripsThroughJson) {
  Manifest manifest = full();
  const auto expect_same = [&] {
    const auto parsed = parse_manifest(to_json(manifest), "m");
    ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
    EXPECT_EQ(*parsed, manifest);
  };
  expect_same();
  manifest.step = manifest.next_ticket = manifest.metrics_bytes =
      std::numeric_limits<uint64_t>::max();
  manifest.files[0].bytes = std::numeric_limits<uint64_t>::max();
  manifest.stoker_version = "quote\" back\\slash \n \xc3\xa9";
  manifest.parent_checkpoint.clear();
  manifest.live_settings = "{}";
  expect_same();
  manifest.processor = "2 x AMD EPYC";
  manifest.system = "Linux 6.1";
  manifest.device = "cuda:1";
  manifest.num_threads = 16;
  manifest.micro_batch_size = 16;
  manifest.gradient_accumulation_steps = 4;
  manifest.model_file = kSha;
  manifest.tied_parameters = {{"head.weight", "wte.weight"}};
  manifest.base_weights = BaseWeights{
      .path = "base", .sha256 = kSha, .tensors = {"0.bias", "0.weight"}, .r = 2, .lora_alpha = 4.5};
  expect_same();
  manifest.base_weights->tensors.clear();
  manifest.base_weights->lora_alpha = 4;
  expect_same();
  manifest.sample_errors = 0;
  expect_same();
  manifest.sample_errors = std::numeric_limits<uint64_t>::max();
  expect_same();
}

TEST(ManifestTest, RoundTripsDatasetVersions) {
  Manifest grown = full();
  grown.dataset_versions = {{.start_ticket = 0, .epoch = 0, .samples = 40, .fingerprint = "a"},
                            {.start_ticket = 30, .epoch = 3, .samples = 64, .fingerprint = "d"}};
  const auto parsed = parse_manifest(to_json(grown), "run/manifest.json");
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  EXPECT_EQ(*parsed, grown);
  EXPECT_EQ(to_json(full()).find("dataset_versions"), std::string::npos);
  expect_corrupt(
      replaced("\"data_digest\":", "\"dataset_versions\":[{\"start_ticket\":0}],\"data_digest\":"));
  expect_corrupt(replaced("\"data_digest\":", "\"dataset_versions\":7,\"data_digest\":"));
}

TEST(ManifestTest, RejectsIncompleteBaseWeights) {
  Manifest manifest = full();
  manifest.base_weights = BaseWeights{.path = "base", .sha256 = kSha, .r = 0, .lora_alpha = 4};
  expect_corrupt(to_json(manifest));
  expect_corrupt(replaced("\"data_digest\":",
                          R"("base_weights":{"path":"base","sha256":"s"},"data_digest":)"));
}

TEST(ManifestTest, ReportsMismatchOnNewerFormat) {
  for (const std::string& text :
       {replaced("\"format\":2", "\"format\":4"), std::string(R"({"format":99})")}) {
    const auto parsed = parse_manifest(text, "run/manifest.json");
    EXPECT_EQ(parsed.status().code(), StatusCode::kMismatch) << parsed.status().to_string();
    EXPECT_THAT(parsed.status().message(), HasSubstr("format"));
  }
}

TEST(ManifestTest, RequiresFileOfEachOptimizerShard) {
  Manifest sharded = full();
  sharded.format = kShardedFormat;
  sharded.optimizer_shards = 2;
  expect_corrupt(to_json(sharded));
  for (const int index : {0, 1}) sharded.files.push_back({optimizer_shard_name(index, 2), 5, kSha});
  const auto parsed = parse_manifest(to_json(sharded), "m");
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  EXPECT_EQ(*parsed, sharded);
  sharded.format = kFormat;
  expect_corrupt(to_json(sharded));
  sharded.format = kShardedFormat;
  sharded.optimizer_shards = 0;
  expect_corrupt(to_json(sharded));
  sharded.optimizer_shards = kMaxOptimizerShards + 1;
  expect_corrupt(to_json(sharded));
}

TEST(ManifestTest, RejectsUnknownFormatValue) {
  for (const char* format : {"0", "1", "-1", "1.5", "\"2\"", "null", "18446744073709551615"})
    expect_corrupt(replaced("\"format\":2", std::string("\"format\":") + format));
}

TEST(ManifestTest, RejectsMissingField) {
  for (const char* field :
       {"format", "step", "epoch", "next_ticket", "created_at", "stoker_version", "torch_version",
        "world_size", "model_digest", "config_digest", "data_digest", "files", "name", "bytes",
        "sha256", "parent_checkpoint", "metrics_bytes", "live_settings"})
    expect_corrupt(replaced("\"" + std::string(field) + "\":", "\"other\":"));
}

TEST(ManifestTest, RejectsFieldsOfWrongTypeOrRange) {
  for (const char* value : {"-1", "1.5", "\"1200\"", "null", "[]", "{}", "18446744073709551616"})
    expect_corrupt(replaced("\"step\":1200", std::string("\"step\":") + value));
  expect_corrupt(replaced("\"torch_version\":\"2.11.0\"", "\"torch_version\":2.11"));
  expect_corrupt(replaced("\"world_size\":1", "\"world_size\":3000000000"));
  expect_corrupt(
      replaced("\"parent_checkpoint\":", "\"micro_batch_size\":-1,\"parent_checkpoint\":"));
  expect_corrupt(
      replaced("\"parent_checkpoint\":", "\"sample_errors\":\"3\",\"parent_checkpoint\":"));
  expect_corrupt(replaced("{\"lr\":1E-4}", "[]"));
  expect_corrupt(replaced("{\"lr\":1E-4}", "\"{}\""));
  expect_corrupt(R"({"format":2,"files":{}})");
}

TEST(ManifestTest, RejectsInvalidFileEntries) {
  for (const char* name : {"../model.safetensors", "/etc/passwd", "a/b", "", ".", "..", ".hidden",
                           "manifest.json", "SHA256SUMS", "with space", "nul\\u0000", "new\\nline"})
    expect_corrupt(replaced("model.safetensors", name));
  expect_corrupt(replaced("model.safetensors", std::string(256, 'n')));
  expect_corrupt(replaced("model.safetensors", "trainer_state.safetensors"));  // duplicate
  for (const std::string& sum : {std::string(), std::string(63, 'a'), std::string(65, 'a'),
                                 std::string(64, 'A'), std::string(64, 'g')})
    expect_corrupt(replaced(kSha, sum));
  Manifest none = full();
  none.files.clear();
  expect_corrupt(to_json(none));
  Manifest many = full();
  for (int i = 0; i < 1000; ++i) many.files.push_back({"f" + std::to_string(i), 1, kSha});
  expect_corrupt(to_json(many));
}

TEST(ManifestTest, RejectsNonObjectJson) {
  for (const char* text : {"", " ", "null", "[]", "\"\"", "7", "{", "}", "{}", "{}{}", "\xff"})
    expect_corrupt(text);
  expect_corrupt(std::string(100'000, '['));
  expect_corrupt(to_json(full()) + "x");
  expect_corrupt(replaced("\"m\"", "\"\xff\""));
}

TEST(ManifestTest, RejectsTruncationAtAnyByte) {
  const std::string content = to_json(full());
  for (size_t bytes = 0; bytes + 1 < content.size(); ++bytes)
    expect_corrupt(content.substr(0, bytes));
}

TEST(ChecksumsTest, UsesCoreutilsFormat) {
  EXPECT_EQ(format_checksums({{kSha, "a.txt"}, {kSha, "b"}}), kSha + "  a.txt\n" + kSha + "  b\n");
  const auto parsed = parse_checksums(kSha + "  a.txt\n" + kSha + "  b\n", "SHA256SUMS");
  ASSERT_TRUE(parsed.ok());
  ASSERT_EQ(parsed->size(), 2U);
  EXPECT_EQ((*parsed)[1].name, "b");
}

TEST(ChecksumsTest, RejectsInvalidLineAndReportsItsNumber) {
  const std::string good = kSha + "  a\n";
  const auto expect_rejected = [](const std::string& text, const std::string& place) {
    const auto parsed = parse_checksums(text, "run/SHA256SUMS");
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.status().code(), StatusCode::kCorrupt);
    EXPECT_THAT(parsed.status().message(), HasSubstr("run/SHA256SUMS" + place));
  };
  expect_rejected("", ":1");
  expect_rejected("\n", ":1");
  expect_rejected(good + "\n", ":2");
  expect_rejected(good + kSha + "  b", ":2");  // no newline at the end
  expect_rejected(good + good, ":2");
  expect_rejected(good + kSha + " *b\n", ":2");
  expect_rejected(good + kSha + "  b\r\n", ":2");
  expect_rejected(good + kSha + "  ../b\n", ":2");
  expect_rejected(good + kSha + "  \n", ":2");
  expect_rejected(good + kSha.substr(1) + "  b\n", ":2");
  expect_rejected(good + std::string(64, 'A') + "  b\n", ":2");
  expect_rejected("# a comment\n" + good, ":1");
}

}  // namespace
}  // namespace stoker::checkpoint
