#include "shared/metrics/metrics_record.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace stoker::metrics {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(MetricsRecordTest, PreservesFieldOrder) {
  MetricsRecord record;
  record.add("z", uint64_t{1}).add("a", 2.5).add("m", std::string_view("x"));
  EXPECT_EQ(to_json(record), R"({"z":1,"a":2.5,"m":"x"})");
}

TEST(MetricsRecordTest, RoundTripsDoublesInShortestForm) {
  for (const double value : {0.1, 1.0 / 3, 3e-4, 1e300, 5e-324, -2.2250738585072014e-308, 1e22}) {
    MetricsRecord record;
    record.add("v", value);
    const auto read = parse_record(to_json(record));
    ASSERT_TRUE(read.ok());
    // The text is exact; Boost.JSON's parser can be off in the last bit.
    EXPECT_DOUBLE_EQ(*read->find_number("v"), value);
    EXPECT_EQ(std::strtod(to_json(record).c_str() + 5, nullptr), value);
  }
  EXPECT_EQ(to_json(MetricsRecord().add("v", 0.1)), R"({"v":0.1})");
}

TEST(MetricsRecordTest, WritesNonfiniteNumbersAsNullAndParsesAsNan) {
  MetricsRecord record;
  record.add("a", kNan).add("b", kInfinity).add("c", -kInfinity);
  EXPECT_EQ(to_json(record), R"({"a":null,"b":null,"c":null})");
  EXPECT_TRUE(std::isnan(*parse_record(to_json(record))->find_number("b")));
}

TEST(MetricsRecordTest, EscapesTextIntoOneLineOfValidJson) {
  MetricsRecord record;
  record.add("a\n", std::string_view("quote \" back \\ line\n tab\t nul\0 end", 34));
  record.add("b", std::string_view("\xff\xc3\x28 \xe2\x82\xac"));
  const std::string text = to_json(record);
  EXPECT_EQ(text.find('\n'), std::string::npos);
  const auto read = parse_record(text);
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(*read->find_text("a\n"), std::string("quote \" back \\ line\n tab\t nul\0 end", 34));
  EXPECT_EQ(*read->find_text("b"), "\xEF\xBF\xBD\xEF\xBF\xBD( \xe2\x82\xac");
}

TEST(MetricsRecordTest, RoundTripsMaximumCount) {
  MetricsRecord record;
  record.add("v", std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(parse_record(to_json(record))->find_count("v"), std::numeric_limits<uint64_t>::max());
}

TEST(MetricsRecordTest, RejectsNegativeOrNonintegerAsCount) {
  const auto record = parse_record(R"({"a":-1,"b":1.5,"c":"1","d":null,"e":true})");
  ASSERT_TRUE(record.ok());
  for (const char* name : {"a", "b", "c", "d", "e", "missing"})
    EXPECT_FALSE(record->find_count(name).has_value()) << name;
  EXPECT_EQ(record->find_number("a"), -1.0);
  EXPECT_FALSE(record->find_number("c").has_value());
}

// Lines as stoker writes them are read by a reader of their own; with a space, by the JSON parser.
TEST(MetricsRecordTest, ReadsPlainLinesAsJsonParserDoes) {
  int read = 0;
  for (const char* const value : {"0",
                                  "-0",
                                  "-7",
                                  "7",
                                  "01",
                                  "1.",
                                  ".5",
                                  "+1",
                                  "-",
                                  "1e",
                                  "1e+",
                                  "1e5",
                                  "1E-5",
                                  "-1.5e+3",
                                  "1e999",
                                  "-1e999",
                                  "1e-999",
                                  "18446744073709551615",
                                  "18446744073709551616",
                                  "-9223372036854775808",
                                  "-9223372036854775809",
                                  "0.1",
                                  "0.30000000000000004",
                                  "2.2250738585072011e-308",
                                  "0x1",
                                  "inf",
                                  "nan",
                                  "NaN",
                                  "true",
                                  "false",
                                  "null",
                                  "nul",
                                  "nullx",
                                  "\"\"",
                                  "\"a b\"",
                                  "\"a\\n\"",
                                  "\"\\u00e4\"",
                                  "\"\xc3\xa4\"",
                                  "\"\xff\"",
                                  "\"a",
                                  "[1]",
                                  "{}",
                                  "",
                                  " 1",
                                  "1 ",
                                  "1,",
                                  "1}",
                                  "\"a\"b",
                                  "1,\"v\":2",
                                  "1,\"w\":2.5"}) {
    const std::string text = std::string("\"v\":") + value + "}";
    const auto plain = parse_record("{" + text), json = parse_record("{ " + text);
    ASSERT_EQ(plain.ok(), json.ok()) << text;
    read += plain.ok() ? 1 : 0;
    EXPECT_TRUE(!plain.ok() || *plain == *json) << text;
  }
  EXPECT_GT(read, 20);
  EXPECT_TRUE(parse_record("{}").ok());
  EXPECT_TRUE(parse_record("{}")->fields().empty());
}

TEST(MetricsRecordTest, RejectsNonFlatObject) {
  for (const char* line : {"", " ", "{", "[]", "1", "null", "{}{}", R"({"a":[1]})", R"({"a":{}})",
                           R"({"a":1)", R"({"a":nan})", "{\"a\":\"\x01\"}", "[[[[[[[[[[[[[[[[[["}) {
    EXPECT_EQ(parse_record(line).status().code(), StatusCode::kCorrupt) << line;
  }
}

TrainMetrics example_train_metrics() {
  return {.step = 120,
          .epoch = 2,
          .loss = 1.25,
          .lr = 3e-4,
          .grad_norm = 0.5,
          .samples_seen = 1920,
          .samples_per_second = 400.5,
          .step_time_ms = 40,
          .data_wait_ms = 0.25,
          .checkpoint_stall_ms = 3,
          .degraded = 1,
          .wall_time = "2026-01-31T12:00:00.123Z"};
}

TEST(TrainMetricsTest, WritesDeterministicFieldsBeforeTimings) {
  EXPECT_EQ(
      to_json(to_record(example_train_metrics())),
      R"({"step":120,"epoch":2,"loss":1.25,"lr":3e-04,"grad_norm":0.5,"samples_seen":1920,)"
      R"("samples_per_second":400.5,"step_time_ms":40,"data_wait_ms":0.25,"checkpoint_stall_ms":3,"degraded":1,)"
      R"("wall_time":"2026-01-31T12:00:00.123Z"})");
}

TEST(TrainMetricsTest, WritesTrainingMetricsAfterLossAndReadsThem) {
  TrainMetrics metrics = example_train_metrics();
  metrics.metrics = {{"accuracy", 0.75}, {"kl", 2.5}};
  const std::string json = to_json(to_record(metrics));
  EXPECT_NE(json.find(R"("loss":1.25,"accuracy":0.75,"kl":2.5,"lr":3e-04)"), std::string::npos)
      << json;
  EXPECT_EQ(train_metrics_from(*parse_record(json))->metrics, metrics.metrics);
  EXPECT_TRUE(train_metrics_from(to_record(example_train_metrics()))->metrics.empty());
}

TEST(TrainMetricsTest, WritesKnownResourcesRounded) {
  TrainMetrics metrics = example_train_metrics();
  metrics.resources[Resource::kCpu] = 1.23456;
  metrics.resources[Resource::kRss] = 412000000;
  metrics.resources[Resource::kDiskRead] = 1000.6;
  metrics.resources[Resource::kPeakRss] = 5;  // only in the status
  const std::string json = to_json(to_record(metrics));
  EXPECT_NE(json.find(R"("degraded":1,"cpu_cores":1.235,"rss_bytes":412000000,)"
                      R"("machine_disk_read_bytes_per_second":1001,"wall_time")"),
            std::string::npos)
      << json;
  const auto read = train_metrics_from(*parse_record(json));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->resources[Resource::kCpu], 1.235);
  EXPECT_EQ(read->resources[Resource::kRss], 412000000);
  EXPECT_TRUE(std::isnan(read->resources[Resource::kWorkerCpu]));
  EXPECT_TRUE(read->metrics.empty());
}

TEST(TrainMetricsTest, RoundTripsThroughJson) {
  const auto read = train_metrics_from(*parse_record(to_json(to_record(example_train_metrics()))));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(to_json(to_record(*read)), to_json(to_record(example_train_metrics())));
}

TEST(TrainMetricsTest, ReportsMissingField) {
  const MetricsRecord complete = to_record(example_train_metrics());
  for (const auto& [missing, ignored] : complete.fields()) {
    if (missing == "degraded") continue;
    MetricsRecord record;
    for (const auto& [name, value] : complete.fields())
      if (name != missing) record.add_value(name, value);
    const auto read = train_metrics_from(record);
    ASSERT_EQ(read.status().code(), StatusCode::kCorrupt);
    EXPECT_NE(read.status().message().find("\"" + missing + "\""), std::string::npos);
  }
}

TEST(TrainMetricsTest, ParsesRecordsOfEarlierReleases) {
  const MetricsRecord complete = to_record(example_train_metrics());
  MetricsRecord record;
  for (const auto& [name, value] : complete.fields())
    if (name != "degraded") record.add_value(name, value);
  const auto read = train_metrics_from(record);
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(read->degraded, 0u);
}

TEST(EvalMetricsTest, TakesNoResourceForMetric) {
  EvalMetrics record{.step = 200,
                     .dataset = "val",
                     .metrics = {{"loss", 1.5}},
                     .num_samples = 64,
                     .manifest_sha256 = "ab",
                     .duration_seconds = 1.5,
                     .wall_time = "w"};
  record.resources[Resource::kCpu] = 0.5;
  record.resources[Resource::kWorkerRss] = 7;
  const std::string text = to_json(to_record(record));
  EXPECT_NE(
      text.find(R"("duration_seconds":1.5,"cpu_cores":0.5,"worker_rss_bytes":7,"wall_time":"w"})"),
      std::string::npos)
      << text;
  const auto read = eval_metrics_from(*parse_record(text));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->metrics, record.metrics);
  EXPECT_EQ(read->resources[Resource::kCpu], 0.5);
  EXPECT_EQ(read->resources[Resource::kWorkerRss], 7);
}

TEST(EvalMetricsTest, TreatsOtherFieldsAsMetricsInOrder) {
  EvalMetrics record{.step = 200,
                     .dataset = "val",
                     .metrics = {{"loss", 1.5}, {"bits_per_byte", 2.125}, {"accuracy", kNan}},
                     .num_samples = 64,
                     .manifest_sha256 = "ab",
                     .duration_seconds = 1.5,
                     .wall_time = "w"};
  const std::string text = to_json(to_record(record));
  EXPECT_EQ(text,
            R"({"step":200,"dataset":"val","loss":1.5,"bits_per_byte":2.125,"accuracy":null,)"
            R"("num_samples":64,"manifest_sha256":"ab","duration_seconds":1.5,"wall_time":"w"})");
  const auto read = eval_metrics_from(*parse_record(text));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->metrics.size(), 3u);
  EXPECT_EQ(read->metrics[1].first, "bits_per_byte");
  EXPECT_EQ(to_json(to_record(*read)), text);
  EXPECT_EQ(read->num_quarantined, 0u);
}

TEST(EvalMetricsTest, StoresNumberOfQuarantinedSamples) {
  const EvalMetrics record{.step = 1, .dataset = "val", .num_samples = 9, .num_quarantined = 2};
  const auto read = eval_metrics_from(*parse_record(to_json(to_record(record))));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->num_quarantined, 2u);
  EXPECT_TRUE(read->metrics.empty());
}

TEST(EvalMetricsTest, RejectsNonnumericMetric) {
  const auto record = parse_record(
      R"({"step":1,"dataset":"v","loss":"x","num_samples":1,"manifest_sha256":"","duration_seconds":1,"wall_time":""})");
  EXPECT_EQ(eval_metrics_from(*record).status().code(), StatusCode::kCorrupt);
  EXPECT_EQ(eval_metrics_from(MetricsRecord()).status().code(), StatusCode::kCorrupt);
}

}  // namespace
}  // namespace stoker::metrics
