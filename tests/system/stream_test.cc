// Training from streams, with the real programs.
#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <boost/json.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "shared/checkpoint/safetensors.h"
#include "shared/run/run_layout.h"
#include "tests/shared/data/stream/producer_client.h"
#include "tests/system/run_fixture.h"

namespace stoker::test {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class StreamTest : public RunTest {
 protected:
  // A small MLP that learns from a stream of numbers with labels. Tests that count records have
  // batches of 16.
  std::string stream_config(const std::string& stream, const std::string& train = "max_steps: 4000",
                            const std::string& feed = "", const std::string& keys = "") const {
    return config_of("train: {" + std::string(kFields) + ", stream: {" + stream + "}" + keys + "}",
                     train, feed);
  }
  static constexpr const char* kFields =
      "format: jsonl, fields: {input: x, label: y}, num_classes: 4";
  static std::string config_of(const std::string& data, const std::string& train,
                               const std::string& feed) {
    return "run: {seed: 9}\ndata: {" + data + "}\n" + feed +
           R"(model: {name: mlp, hidden_sizes: [16], dropout: 0.1}
task: {name: classification}
optimizer: {name: adamw, lr: 0.003}
scheduler: {name: constant, warmup_steps: 10}
checkpoint: {save_every_steps: 100, keep_last: 3}
metrics: {log_every_steps: 47}
train: {micro_batch_size: 16, device: cpu, num_threads: 1, )" +
           train + "}\n";
  }
  static std::string record(int i) {
    return "{\"x\": " + std::to_string(i % 97) + ".25, \"y\": " + std::to_string(i % 4) + "}\n";
  }
  static std::string records(int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += record(i);
    return text;
  }
  void write_shards(int shards, int records_each) const {
    for (int shard = 0; shard < shards; ++shard) {
      std::ofstream out(path("part-" + std::to_string(shard) + ".jsonl"));
      for (int i = 0; i < records_each; ++i) out << record(shard * 31 + i);
    }
  }
  std::string shards() const { return "source: '" + path("part-*.jsonl") + "'"; }
  std::string shuffled_shards() const {
    return shards() + ", queue: random_shuffle, capacity: 300, num_threads: 1";
  }

  static boost::json::object exit_status(const std::string& run) {
    return boost::json::parse(text_of(run::RunLayout(run).exit_status_file())).as_object();
  }
  static std::string reason(const std::string& run) {
    return std::string(exit_status(run).at("reason").as_string());
  }
  // The number of elements in the queue of the newest checkpoint.
  static uint64_t queued(const std::string& run) {
    const auto file =
        checkpoint::SafetensorsFile::open(newest_checkpoint(run) + "/trainer_state.safetensors");
    EXPECT_TRUE(file.ok()) << file.status().to_string();
    if (!file.ok()) return 0;
    const TensorSpec* const queue = (*file)->find("stream.queue");
    return queue == nullptr ? 0 : static_cast<uint64_t>(queue->shape.at(0));
  }
  void expect_same_result(const std::string& run, const std::string& as, uint64_t step) const {
    EXPECT_EQ(model_sha256(run, step), model_sha256(as, step));
    EXPECT_EQ(deterministic_records(run), deterministic_records(as));
  }
  static std::vector<std::string> until(uint64_t step) {
    return {"--set", "train.max_steps=" + std::to_string(step)};
  }
  static constexpr uint64_t kEndless = 100'000'000;
  // Trains with kills of stokerd, and once without interruption. No run that is to be killed ends
  // before.
  void expect_same_when_killed(const std::string& config) {
    std::vector<KillPoint> points;
    for (int i = 0; i < 8; ++i) points.push_back(static_cast<KillPoint>(i % 4));
    std::shuffle(points.begin(), points.end(), std::mt19937(17));
    for (size_t kills = 0; kills < points.size();) {
      const Progress before = progress_of(run_dir());
      Process trainer = this->trainer(config, run_dir(), until(kEndless));
      if (const auto ended = wait_for(points[kills], trainer, run_dir(), before)) {
        // Too many starts without a checkpoint, of which the next one is allowed.
        ASSERT_EQ(ended->code, 93) << log_of("stokerd");
        continue;
      }
      ASSERT_TRUE(trainer.kill());
      ++kills;
    }
    const uint64_t last = newest_step(run_dir()) + 500;
    Exit ended = train(config, run_dir(), until(last));
    if (ended.code == 93) ended = train(config, run_dir(), until(last));
    ASSERT_EQ(ended.code, 0) << log_of("stokerd");
    ASSERT_EQ(train(config, run_dir("uninterrupted"), until(last)).code, 0) << log_of("stokerd");
    expect_same_result(run_dir(), run_dir("uninterrupted"), last);
  }
  static constexpr const char* kManyRestarts = "feed: {max_restarts_per_minute: 100}\n";
  // The same with kills of the worker process.
  void expect_same_when_workers_are_killed(const std::string& config) {
    Process trainer = this->trainer(config, run_dir(), until(kEndless));
    pid_t killed = 0;
    int kills = 0;
    size_t records = 0;  // at the last kill
    ASSERT_TRUE(wait_until(90s, [&] {
      const auto workers = children_of(trainer.pid(), "stoker-feed");
      const size_t now = num_records(run_dir());
      if (!workers.empty() && workers.front() != killed && now > records && kills < 6) {
        killed = workers.front();
        records = now;
        kills += ::kill(killed, SIGKILL) == 0 ? 1 : 0;
      }
      return kills == 6 && now > records;
    })) << log_of("stokerd");
    trainer.signal(SIGTERM);
    EXPECT_EQ(code_of(trainer), 0) << log_of("stokerd");
    EXPECT_THAT(log_of("stokerd"), HasSubstr("worker process crashed cause=\"signal 9 "));
    const uint64_t last = newest_step(run_dir()) + 50;
    for (const std::string& run : {run_dir(), run_dir("uninterrupted")})
      ASSERT_EQ(train(config, run, until(last)).code, 0) << log_of("stokerd");
    expect_same_result(run_dir(), run_dir("uninterrupted"), last);
  }
  std::string status(const std::string& run) const {
    std::ofstream(path("status.out"), std::ios::trunc).close();
    (void)ctl(run, {"--json", "status"}, "status").wait(30s);
    return log_of("status");
  }
};

// ---- Files

TEST_F(StreamTest, MatchesUninterruptedRunWhenKilled) {
  write_shards(3, 500);
  expect_same_when_killed(write_config(stream_config(shuffled_shards())));
  EXPECT_EQ(reason(run_dir()), "max_steps reached");
}

TEST_F(StreamTest, MatchesUninterruptedRunWhenWorkersAreKilled) {
  write_shards(3, 500);
  expect_same_when_workers_are_killed(
      write_config(stream_config(shuffled_shards(), "max_steps: 4000", kManyRestarts)));
}

TEST_F(StreamTest, UsesEachRecordOnceWithSeveralThreads) {
  write_shards(8, 250);
  const std::string config =
      write_config(stream_config(shards() + ", queue: fifo, capacity: 100, "
                                            "num_threads: 4, num_epochs: 3"));
  // Stops that save, one after another, and then kills.
  for (const char* const steps : {"30", "120", "210"})
    ASSERT_EQ(train(config, run_dir(), {"--set", std::string("train.max_steps=") + steps}).code, 0)
        << log_of("stokerd");
  for (int i = 0; i < 3; ++i) {
    const Progress before = progress_of(run_dir());
    Process trainer = this->trainer(config, run_dir());
    if (!wait_for(KillPoint::kTrainingStarted, trainer, run_dir(), before)) (void)trainer.kill();
  }
  ASSERT_EQ(train(config, run_dir()).code, 0) << log_of("stokerd");
  EXPECT_EQ(newest_step(run_dir()) * 16 + queued(run_dir()), 3 * 8 * 250u);
  EXPECT_EQ(reason(run_dir()), "data exhausted");
}

TEST_F(StreamTest, EndsWithTheStream) {
  write_shards(2, 503);
  const std::string config = write_config(stream_config(shuffled_shards() + ", num_epochs: 1"));
  for (int start = 0; start < 2; ++start) {
    EXPECT_EQ(train(config, run_dir()).code, 0) << log_of("stokerd");
    EXPECT_EQ(exit_status(run_dir()).at("state").as_string(), "finished");
    EXPECT_EQ(reason(run_dir()), "data exhausted");
    EXPECT_EQ(newest_step(run_dir()), 2 * 503 / 16u);
    EXPECT_EQ(queued(run_dir()), 2 * 503 % 16u);
  }
}

TEST_F(StreamTest, RewindsStepThatTheStreamDoesNotComplete) {
  write_shards(1, 16 * 8);
  const std::string config =
      write_config(stream_config(shards() + ", capacity: 100, num_threads: 1, num_epochs: 1",
                                 "gradient_accumulation_steps: 3, max_steps: 4000"));
  EXPECT_EQ(train(config, run_dir()).code, 0) << log_of("stokerd");
  EXPECT_EQ(newest_step(run_dir()), 2u);
  EXPECT_EQ(reason(run_dir()), "data exhausted");
  // Another epoch: the 32 records of the incomplete step are used then.
  EXPECT_EQ(
      train(config, run_dir(), {"--set", "data.train.stream.num_epochs=2", "--allow-data-change"})
          .code,
      0)
      << log_of("stokerd");
  EXPECT_EQ(newest_step(run_dir()), 5u);
}

TEST_F(StreamTest, StartsOverWithOtherFiles) {
  write_shards(1, 160);
  const std::string config = write_config(stream_config(shards() + ", num_epochs: 1"));
  ASSERT_EQ(train(config, run_dir()).code, 0) << log_of("stokerd");
  write_shards(2, 160);
  EXPECT_EQ(train(config, run_dir()).code, 78);
  EXPECT_EQ(train(config, run_dir(), {"--allow-data-change"}).code, 0) << log_of("stokerd");
  EXPECT_EQ(newest_step(run_dir()), 10u + 20u);
}

TEST_F(StreamTest, RunsDocumentedExample) {
  const std::string page = text_of(STOKER_STREAMS_PAGE);
  const size_t begin = page.find("```yaml\n") + 8;
  std::string example = page.substr(begin, page.find("```\n", begin) - begin);
  const size_t folder = example.find("shards/");
  ASSERT_NE(folder, std::string::npos);
  example.replace(folder, 7, path(""));
  write_shards(3, 400);
  EXPECT_EQ(train(write_config(example), run_dir(), {"--set", "train.device=cpu"}).code, 0)
      << log_of("stokerd");
  EXPECT_EQ(newest_step(run_dir()), 2 * 3 * 400 / 16u);
  EXPECT_EQ(reason(run_dir()), "data exhausted");
}

// ---- Mixtures

// Of the shards and a dataset with an index: a fourth and three fourths of each batch.
class StreamMixtureTest : public StreamTest {
 protected:
  void SetUp() override {
    StreamTest::SetUp();
    write_archive(333);
  }
  void write_archive(int count) const {
    std::ofstream out(path("archive.jsonl"));
    for (int i = 0; i < count; ++i) out << record(50 + i * 3);
  }
  std::string mixture_config(const std::string& stream,
                             const std::string& train = "max_steps: 4000",
                             const std::string& feed = "") const {
    return write_config(config_of(
        "live: {" + std::string(kFields) + ", stream: {" + stream + "}}, archive: {" + kFields +
            ", path: '" + path("archive.jsonl") + "'}, train: {mixture: {live: 1, archive: 3}}",
        train, feed));
  }
};

TEST_F(StreamMixtureTest, MatchesUninterruptedRunWhenKilled) {
  write_shards(3, 500);
  expect_same_when_killed(mixture_config(shuffled_shards()));
}

TEST_F(StreamMixtureTest, MatchesUninterruptedRunWhenWorkersAreKilled) {
  write_shards(3, 500);
  expect_same_when_workers_are_killed(
      mixture_config(shuffled_shards(), "max_steps: 4000", kManyRestarts));
}

TEST_F(StreamMixtureTest, UsesEachRecordOnceAndEndsWithTheStream) {
  write_shards(4, 253);
  const std::string config =
      mixture_config(shards() + ", capacity: 100, num_threads: 3, num_epochs: 1");
  for (const char* const steps : {"30", "120"})
    ASSERT_EQ(train(config, run_dir(), {"--set", std::string("train.max_steps=") + steps}).code, 0)
        << log_of("stokerd");
  for (int start = 0; start < 2; ++start) {
    EXPECT_EQ(train(config, run_dir()).code, 0) << log_of("stokerd");
    EXPECT_EQ(reason(run_dir()), "data exhausted");
    EXPECT_EQ(newest_step(run_dir()), 4 * 253 / 4u);
    EXPECT_EQ(queued(run_dir()), 0u);
  }
}

TEST_F(StreamMixtureTest, NamesFilesOfSamplesThatCannotBeRead) {
  write_shards(1, 200);
  const std::string config =
      mixture_config(shards(), "max_steps: 1000000", "feed: {max_sample_error_rate: 0.9}\n");
  Process trainer = this->trainer(config, run_dir());
  ASSERT_TRUE(wait_until(60s, [&] { return newest_record_step(run_dir()) > 0; }));
  write_archive(332);  // in place, so that no sample of it can be read any more
  EXPECT_EQ(code_of(trainer), 65) << log_of("stokerd");
  EXPECT_THAT(text_of(run_dir() + "/sample_errors.jsonl"), HasSubstr("archive.jsonl"));
}

TEST_F(StreamMixtureTest, RejectsResumeWithOtherData) {
  write_shards(1, 160);
  const std::string config = mixture_config(shards() + ", num_epochs: 1");
  ASSERT_EQ(train(config, run_dir()).code, 0) << log_of("stokerd");
  EXPECT_EQ(newest_step(run_dir()), 40u);
  write_archive(334);
  EXPECT_EQ(train(config, run_dir()).code, 78);
  EXPECT_EQ(train(config, run_dir(), {"--allow-data-change"}).code, 0) << log_of("stokerd");
  EXPECT_EQ(newest_step(run_dir()), 80u);  // the stream starts over
}

// ---- Files that arrive

// A spool folder, into which the test moves files.
class SpoolTest : public StreamTest {
 protected:
  void SetUp() override {
    StreamTest::SetUp();
    for (const char* const name : {"spool", "other"})
      ASSERT_EQ(::mkdir(path(name).c_str(), 0700), 0);
  }
  std::string spool_config(const std::string& folder, const std::string& train) const {
    return write_config(
        stream_config("source: spool, capacity: 60", train, "", ", path: '" + path(folder) + "'"),
        folder + ".yaml");
  }
  // File `number` has 40 records.
  void deliver(const std::string& folder, int number) const {
    const std::string name = std::to_string(number) + ".jsonl";
    std::string text;
    for (int i = 0; i < 40; ++i) text += record(number * 40 + i);
    std::ofstream(path(folder + "/." + name)) << text;
    ASSERT_EQ(::rename(path(folder + "/." + name).c_str(), path(folder + "/" + name).c_str()), 0);
  }
  void end(const std::string& folder) const { std::ofstream(path(folder + "/.end")); }
  bool is_archived(const std::string& folder, int number) const {
    const std::string name = std::to_string(number) + ".jsonl";
    return ::access(path(folder + "/done/" + name).c_str(), F_OK) == 0 &&
           ::access(path(folder + "/" + name).c_str(), F_OK) != 0;
  }
};

TEST_F(SpoolTest, ContinuesWithFilesThatWereNotRead) {
  const std::string steps = "max_steps: 4000";
  for (int number = 10; number < 20; ++number) deliver("other", number);
  end("other");
  ASSERT_EQ(train(spool_config("other", steps), run_dir("uninterrupted")).code, 0)
      << log_of("stokerd");
  EXPECT_EQ(newest_step(run_dir("uninterrupted")), 10 * 40 / 16u);

  const std::string config = spool_config("spool", steps);
  int delivered = 10;
  // Ends with a checkpoint, without one, and with the end of the stream.
  for (const uint64_t step : {7, 17, 25}) {
    Process trainer = this->trainer(config, run_dir());
    while (static_cast<uint64_t>(delivered - 10) * 40 < step * 16) deliver("spool", delivered++);
    if (step == 25) end("spool");
    const std::string reached = "\"step\":" + std::to_string(step) + ",";
    std::optional<Exit> ended;
    ASSERT_TRUE(wait_until(60s, [&] {
      ended = trainer.wait(0ms);
      return ended || (step < 25 && status(run_dir()).find(reached) != std::string::npos);
    })) << log_of("stokerd");
    if (step == 7) {
      ASSERT_FALSE(ended.has_value());
      trainer.signal(SIGTERM);
      ended = trainer.wait(60s);
    }
    if (step == 17) {
      ASSERT_FALSE(ended.has_value());
      ASSERT_TRUE(trainer.kill());
      continue;
    }
    ASSERT_TRUE(ended.has_value());
    EXPECT_EQ(ended->code, 0) << log_of("stokerd");
    EXPECT_EQ(newest_step(run_dir()), step);
  }
  EXPECT_EQ(reason(run_dir()), "data exhausted");
  EXPECT_EQ(model_sha256(run_dir(), 25), model_sha256(run_dir("uninterrupted"), 25));
  for (int number = 10; number < 20; ++number) EXPECT_TRUE(is_archived("spool", number)) << number;
  // The last checkpoint can be from before the end of the last file was found.
  EXPECT_EQ(train(config, run_dir()).code, 0) << log_of("stokerd");
  EXPECT_EQ(newest_step(run_dir()), 25u);
}

// ---- Errors

// A stream has no dataset, from which the messages of others are.
TEST_F(StreamTest, SkipsRecordThatCannotBeUsed) {
  write_shards(1, 170);
  std::ofstream(path("part-0.jsonl"), std::ios::app) << "{\"x\": 1, \"y\": 17}\nno JSON\n";
  std::ofstream(path("part-1.jsonl")) << records(150);
  const std::string config =
      write_config(stream_config(shards() + ", num_threads: 1, num_epochs: 1", "max_steps: 4000",
                                 "feed: {max_sample_error_rate: 0.5}\n"));
  EXPECT_EQ(train(config, run_dir()).code, 0) << log_of("stokerd");
  EXPECT_EQ(newest_step(run_dir()), 20u);
  EXPECT_THAT(text_of(run_dir() + "/sample_errors.jsonl"),
              AllOf(HasSubstr("part-0.jsonl: record 170"), HasSubstr("part-0.jsonl: record 171")));
}

TEST_F(StreamTest, FailsWithoutRecords) {
  std::ofstream(path("part-0.jsonl")) << records(15);
  const std::string config = write_config(stream_config(shards() + ", num_epochs: 1"));
  EXPECT_EQ(train(config, run_dir()).code, 65) << log_of("stokerd");
  EXPECT_THAT(reason(run_dir()), HasSubstr("ended before the first step"));
}

TEST_F(StreamTest, HasNoBatchesToShow) {
  write_shards(1, 160);
  const std::string config = write_config(stream_config(shards() + ", num_epochs: 1"));
  ASSERT_EQ(train(config, run_dir()).code, 0) << log_of("stokerd");
  const auto exit = ctl(run_dir(), {"show-batch", "1"}, "show-batch").wait(30s);
  ASSERT_TRUE(exit.has_value());
  EXPECT_NE(exit->code, 0);
  EXPECT_THAT(log_of("show-batch"), HasSubstr("a stream, which has no index"));
}

// ---- Producers

// A FIFO, which the test writes.
class StreamProducerTest : public StreamTest {
 protected:
  void SetUp() override {
    StreamTest::SetUp();
    ASSERT_EQ(::mkfifo(fifo().c_str(), 0600), 0);
    // Also for reading, so that it is open before stokerd opens it.
    writer_ = UniqueFd(::open(fifo().c_str(), O_RDWR | O_CLOEXEC));
    ASSERT_TRUE(writer_.valid());
  }
  std::string fifo() const { return path("records"); }
  void write(const std::string& text) const {
    ASSERT_EQ(::write(writer_.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  void end_writing() { writer_.reset(); }
  int unread() const {
    int bytes = 0;
    EXPECT_EQ(::ioctl(writer_.get(), FIONREAD, &bytes), 0);
    return bytes;
  }
  // Trains from the FIFO, of which stokerd knows the name or which is its standard input.
  void expect_waits_and_ends(const std::string& source, Process trainer) {
    write(records(80));
    std::string answer;
    EXPECT_TRUE(wait_until(60s,
                           [&] {
                             answer = status(run_dir());
                             return answer.find("\"step\":5,") != std::string::npos &&
                                    answer.find("\"waiting_for\":\"data from " + source + "\"") !=
                                        std::string::npos;
                           }))
        << answer << log_of("stokerd");
    write(records(40));
    end_writing();
    const auto ended = trainer.wait(60s);
    ASSERT_TRUE(ended.has_value());
    EXPECT_EQ(ended->code, 0) << log_of("stokerd");
    EXPECT_EQ(reason(run_dir()), "data exhausted");
    EXPECT_EQ(newest_step(run_dir()), 7u);
  }
  Process trainer_with_stdin(const std::string& config) const {
    return Process({"/bin/sh", "-c", "exec \"$0\" \"$@\" < '" + fifo() + "'", program("stokerd"),
                    "--config", config, "--run-dir", run_dir()},
                   path("stokerd.out"));
  }

 private:
  UniqueFd writer_;
};

TEST_F(StreamProducerTest, WaitsForNamedPipe) {
  const std::string config = write_config(stream_config("source: '" + fifo() + "'"));
  expect_waits_and_ends(fifo(), trainer(config, run_dir()));
}

TEST_F(StreamProducerTest, WaitsForStandardInput) {
  const std::string config = write_config(stream_config("source: stdin"));
  expect_waits_and_ends("stdin", trainer_with_stdin(config));
}

// Trains from standard input in two processes, of which the first one ends at step 5.
class StreamResumeTest : public StreamProducerTest {
 protected:
  void train_in_two_processes(const std::string& config) {
    {
      Process trainer = trainer_with_stdin(config);
      write(records(85));
      ASSERT_TRUE(wait_until(60s, [&] {
        return status(run_dir()).find("\"step\":5,") != std::string::npos;
      })) << log_of("stokerd");
      trainer.signal(SIGTERM);
      ASSERT_TRUE(trainer.wait(60s).has_value());
    }
    EXPECT_EQ(newest_step(run_dir()), 5u);
    Process trainer = trainer_with_stdin(config);
    write(records(40));
    EXPECT_TRUE(wait_until(60s, [&] {
      return status(run_dir()).find("\"step\":7,") != std::string::npos;
    })) << log_of("stokerd");
    end_writing();
    const auto ended = trainer.wait(60s);
    ASSERT_TRUE(ended.has_value());
    EXPECT_EQ(ended->code, 0) << log_of("stokerd");
    EXPECT_EQ(newest_step(run_dir()), 7u);
  }
};

TEST_F(StreamResumeTest, ContinuesWithRecordsThatWereRead) {
  const std::string config = write_config(stream_config("source: stdin"));
  train_in_two_processes(config);
  EXPECT_THAT(log_of("stokerd"), Not(HasSubstr("stream records lost")));
  std::ofstream(path("input.jsonl")) << records(85) << records(40);
  Process uninterrupted(
      {"/bin/sh", "-c", "exec \"$0\" \"$@\" < '" + path("input.jsonl") + "'", program("stokerd"),
       "--config", config, "--run-dir", run_dir("uninterrupted")},
      path("uninterrupted.out"));
  const auto ended = uninterrupted.wait(60s);
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->code, 0) << log_of("uninterrupted");
  EXPECT_EQ(model_sha256(run_dir(), 7), model_sha256(run_dir("uninterrupted"), 7));
}

TEST_F(StreamResumeTest, ContinuesWithNewRecordsIfNoneAreSaved) {
  train_in_two_processes(write_config(stream_config("source: stdin, save_elements_mib: 0")));
  EXPECT_THAT(log_of("stokerd"), HasSubstr("stream records lost source=stdin "));
}

// The checkpoint was saved before the last records were read.
TEST_F(StreamResumeTest, ContinuesWithRecordsReadAfterCheckpoint) {
  std::string config = stream_config("source: '" + fifo() + "'", "max_steps: 7");
  config.replace(config.find("save_every_steps: 100"), 21, "save_every_steps: 5");
  config = write_config(config);
  const std::string all = records(112);
  const size_t first = records(82).size(), cut = records(92).size() + 10;  // in a record
  {
    Process trainer = this->trainer(config, run_dir());
    write(all.substr(0, first));
    ASSERT_TRUE(wait_until(60s, [&] { return newest_step(run_dir()) == 5; })) << log_of("stokerd");
    write(all.substr(first, cut - first));
    ASSERT_TRUE(wait_until(60s, [&] { return unread() == 0; })) << log_of("stokerd");
    trainer.signal(SIGTERM);
    const auto ended = trainer.wait(60s);
    ASSERT_TRUE(ended.has_value());
    EXPECT_EQ(ended->code, 0) << log_of("stokerd");
  }
  EXPECT_EQ(newest_step(run_dir()), 5u);
  Process trainer = this->trainer(config, run_dir());
  write(all.substr(cut));
  const auto ended = trainer.wait(60s);
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->code, 0) << log_of("stokerd");
  EXPECT_THAT(log_of("stokerd"), Not(HasSubstr("stream record")));
  std::ofstream(path("input.jsonl")) << all;
  const std::string whole =
      write_config(stream_config("source: '" + path("input[.]jsonl") + "', num_epochs: 1"));
  ASSERT_EQ(train(whole, run_dir("uninterrupted")).code, 0) << log_of("stokerd");
  EXPECT_EQ(model_sha256(run_dir(), 7), model_sha256(run_dir("uninterrupted"), 7));
}

// Without a step, and with a checkpoint from before it.
TEST_F(StreamResumeTest, ContinuesWithRecordsFromBeforeFirstStep) {
  for (const bool saves_at_start : {false, true}) {
    const std::string run = run_dir(saves_at_start ? "saved" : "unsaved");
    const std::string config =
        write_config(stream_config("source: '" + fifo() + "'", "max_steps: 1"));
    const std::vector<std::string> options{
        "--set", "checkpoint.save_at_start=" + std::string(saves_at_start ? "true" : "false")};
    {
      Process trainer = this->trainer(config, run, options);
      write(records(13));
      ASSERT_TRUE(wait_until(60s, [&] { return unread() == 0; })) << log_of("stokerd");
      trainer.signal(SIGTERM);
      const auto stopped = trainer.wait(60s);
      ASSERT_TRUE(stopped.has_value());
      EXPECT_EQ(stopped->code, 0) << log_of("stokerd");
    }
    EXPECT_EQ(checkpoints(run).size(), saves_at_start ? 1u : 0u);
    Process trainer = this->trainer(config, run, options);
    write(records(3));
    const auto ended = trainer.wait(60s);
    ASSERT_TRUE(ended.has_value());
    EXPECT_EQ(ended->code, 0) << log_of("stokerd");
    EXPECT_EQ(newest_step(run), 1u);
    EXPECT_THAT(log_of("stokerd"), Not(HasSubstr("lost")));
  }
}

// The records that were read since the checkpoint are used again.
// Diverges after step 100 as in nonfinite_test.cc, with one target by a factor of 39 per step.
TEST_F(StreamProducerTest, LosesNothingOnRollback) {
  {
    std::ofstream input(path("input.jsonl"));
    for (int i = 0; i < 200 * 8; ++i)
      input << R"({"x": )" << i % 97 / 97.0 << R"(, "y": )" << i % 5 << R"(, "comment": ")"
            << std::string(5000, 'c') << "\"}\n";
  }
  const std::string config = write_config(R"(
data: {train: {format: jsonl, fields: {input: x, target: y}, stream: {source: stdin, capacity: 20}}}
model: {name: mlp, hidden_sizes: [16]}
task: {name: regression}
eval: {datasets: []}
optimizer: {name: sgd, lr: 0.02}
scheduler: {name: step, warmup_steps: 0, step_size: 100, gamma: 1000}
checkpoint: {save_every_steps: 25}
metrics: {log_every_steps: 5, tensorboard: false}
train: {max_steps: 200, micro_batch_size: 8, device: cpu, num_threads: 1, max_grad_norm: null, rollback_lr_factor: 0.001, on_nonfinite: rollback}
)");
  Process trainer({"/bin/sh", "-c", "exec \"$0\" \"$@\" < '" + path("input.jsonl") + "'",
                   program("stokerd"), "--config", config, "--run-dir", run_dir()},
                  path("stokerd.out"));
  const auto ended = trainer.wait(60s);
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->code, 0) << log_of("stokerd");
  EXPECT_THAT(log_of("stokerd"),
              AllOf(HasSubstr("run rolled back"), Not(HasSubstr("stream record")),
                    Not(HasSubstr("sample error"))));
  EXPECT_EQ(reason(run_dir()), "max_steps reached");
}

// All that the worker process had read is there.
TEST_F(StreamProducerTest, LosesNothingIfWorkerIsKilled) {
  std::ofstream(path("input.jsonl")) << records(120);
  const std::string whole =
      write_config(stream_config("source: '" + path("input[.]jsonl") + "', num_epochs: 1"));
  ASSERT_EQ(train(whole, run_dir("uninterrupted")).code, 0) << log_of("stokerd");
  const std::string config = write_config(stream_config("source: '" + fifo() + "'"));
  Process trainer = this->trainer(config, run_dir());
  write(records(90));
  ASSERT_TRUE(wait_until(60s, [&] {
    return status(run_dir()).find("\"step\":5,") != std::string::npos;
  })) << log_of("stokerd");
  const auto workers = children_of(trainer.pid(), "stoker-feed");
  ASSERT_EQ(workers.size(), 1u);
  ASSERT_EQ(::kill(workers.front(), SIGKILL), 0);
  write(records(120).substr(records(90).size()));
  end_writing();
  const auto ended = trainer.wait(60s);
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->code, 0) << log_of("stokerd");
  EXPECT_EQ(reason(run_dir()), "data exhausted");
  EXPECT_EQ(model_sha256(run_dir(), 7), model_sha256(run_dir("uninterrupted"), 7));
}

// ---- External producers

using data::stream::testing::hello;
using data::stream::testing::kEndOfStream;
using data::stream::testing::ProducerClient;

// Processes that connect to the socket of a run.
class ExternalProducerTest : public StreamTest {
 protected:
  std::string external_config(const std::string& stream = "num_threads: 1",
                              const std::string& train = "max_steps: 4000") const {
    return write_config(stream_config("source: external, " + stream, train,
                                      "feed: {max_restarts_per_minute: 100}\n"));
  }
  static std::string socket_of(const std::string& run) {
    return run::RunLayout(run).producer_socket();
  }
  std::string socket() const { return socket_of(run_dir()); }
  // Waits until the run accepts producers.
  ProducerClient connect(const std::string& first_line) const {
    return connect_to(run_dir(), first_line);
  }
  ProducerClient connect_to(const std::string& run, const std::string& first_line) const {
    EXPECT_TRUE(wait_until(60s, [&] { return ProducerClient(socket_of(run)).is_connected(); }))
        << log_of("stokerd");
    return ProducerClient(socket_of(run), first_line);
  }
  // The documented example.
  Process producer(const std::string& run, const std::string& name,
                   const std::vector<std::string>& records) const {
    return Process(joined({"python3", STOKER_STREAM_PRODUCER, run, name}, records),
                   path(name + ".out"));
  }
  static bool has_python() { return std::system("python3 -c 'import socket' 2>/dev/null") == 0; }
  bool has_step(uint64_t step) const {
    return status(run_dir()).find("\"step\":" + std::to_string(step) + ",") != std::string::npos;
  }
  void expect_end(Process& trainer, uint64_t step) const { expect_end(trainer, step, run_dir()); }
  void expect_end(Process& trainer, uint64_t step, const std::string& run) const {
    const auto ended = trainer.wait(60s);
    ASSERT_TRUE(ended.has_value());
    EXPECT_EQ(ended->code, 0) << log_of("stokerd");
    EXPECT_EQ(reason(run), "data exhausted");
    EXPECT_EQ(newest_step(run), step);
  }
};

TEST_F(ExternalProducerTest, WaitsForProducersAndEndsWithTheStream) {
  Process trainer = this->trainer(external_config(), run_dir());
  ProducerClient client = connect(hello("sim"));
  ASSERT_EQ(client.read_offset(), 0u);
  struct stat info {};
  ASSERT_EQ(::stat(socket().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0660u);
  client.send(records(80));
  std::string answer;
  const std::string waits =
      "\"waiting_for\":\"data from producer sim (process " + std::to_string(::getpid()) + ", ";
  EXPECT_TRUE(wait_until(60s,
                         [&] {
                           answer = status(run_dir());
                           return answer.find("\"step\":5,") != std::string::npos &&
                                  answer.find(waits) != std::string::npos;
                         }))
      << answer << log_of("stokerd");
  // The worker process reports its threads a few times a second.
  EXPECT_TRUE(wait_until(60s, [&] {
    std::filesystem::remove(path("threads.out"));  // Process appends to the file
    const auto listed = ctl(run_dir(), {"threads"}, "threads").wait(30s);
    answer = log_of("threads");
    return listed && listed->code == 0 && answer.find("examples/enqueue-0") != std::string::npos &&
           answer.find("file-names/close") != std::string::npos &&
           answer.find("stream-batches") != std::string::npos;
  })) << answer;
  client.close();
  EXPECT_TRUE(wait_until(60s, [&] {
    answer = status(run_dir());
    return answer.find("\"waiting_for\":\"data from external producers\"") != std::string::npos;
  })) << answer;
  // Another connection continues; a second one with the same name is rejected.
  ProducerClient again(socket(), hello("sim"));
  EXPECT_EQ(again.read_line(),
            "{\"format\":1,\"offset\":" + std::to_string(records(80).size()) + ",\"records\":80}");
  ProducerClient second(socket(), hello("sim"));
  EXPECT_THAT(second.read_line(), HasSubstr("producer sim is connected already"));
  again.send(records(40));
  again.close();
  ProducerClient end(socket(), kEndOfStream);
  EXPECT_EQ(end.read_line(), "{\"format\":1,\"end\":true}");
  expect_end(trainer, 7);
  EXPECT_NE(::access(socket().c_str(), F_OK), 0);
}

TEST_F(ExternalProducerTest, ContinuesWithOthersAfterInvalidOrDeadProducers) {
  Process trainer = this->trainer(external_config("num_threads: 2"), run_dir());
  ProducerClient garbage = connect("\x16\x03\x01 garbage\n");
  EXPECT_THAT(garbage.read_line(), HasSubstr("the first line must be a JSON object"));
  EXPECT_TRUE(wait_until(60s, [&] {
    ProducerClient other_version(socket(), "{\"format\":2,\"name\":\"new\"}\n");
    EXPECT_THAT(other_version.read_line(), HasSubstr("this stokerd supports format 1"));
    return log_of("stokerd").find("format 2 is not supported") != std::string::npos;
  }));
  const ProducerClient silent(socket());
  // A process that is killed in mid-record.
  const pid_t child = ::fork();
  if (child == 0) {
    ProducerClient dying(socket(), hello("dying"));
    if (dying.read_offset()) dying.send(records(16) + "{\"x\": 1");
    ::pause();
    ::_exit(0);
  }
  EXPECT_TRUE(wait_until(60s, [&] { return has_step(1); })) << log_of("stokerd");
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ProducerClient other(socket(), hello("other"));
  EXPECT_EQ(other.read_offset(), 0u);
  other.send(records(16));
  other.close();
  EXPECT_TRUE(wait_until(60s, [&] { return has_step(2); })) << log_of("stokerd");
  const std::string dead = "producer dying (process " + std::to_string(child) + ", ";
  EXPECT_TRUE(wait_until(60s, [&] {
    const std::string log = log_of("stokerd");
    return log.find("incomplete stream record dropped source=\"" + dead) != std::string::npos &&
           log.find("stream producer disconnected producer=dying process=\"process " +
                    std::to_string(child)) != std::string::npos;
  })) << log_of("stokerd");
  ProducerClient revived(socket(), hello("dying"));
  EXPECT_EQ(revived.read_offset(), records(16).size());
  revived.send(records(16));
  revived.close();
  EXPECT_FALSE(ProducerClient(socket(), kEndOfStream).read_line().empty());
  expect_end(trainer, 3);
}

TEST_F(ExternalProducerTest, BlocksProducerWhileTrainingIsPaused) {
  Process trainer = this->trainer(external_config("capacity: 64, num_threads: 1"), run_dir());
  ProducerClient client = connect(hello("sim"));
  ASSERT_EQ(client.read_offset(), 0u);
  ASSERT_TRUE(wait_until(60s, [&] {
    const auto exit = ctl(run_dir(), {"pause"}, "pause").wait(30s);
    return exit && exit->code == 0;
  })) << log_of("pause");
  const std::string text = records(1000);
  size_t sent = 0;
  int full = 0;  // times in a row
  ASSERT_TRUE(wait_until(60s, [&] {
    const size_t now = client.send_available(text.substr(0, text.find('\n') + 1));
    sent += now;
    full = now == 0 ? full + 1 : 0;
    while (now > 0 && client.send_available(text) == text.size()) sent += text.size();
    return full == 10;
  }));
  // The queue, and the buffers of socket and reader.
  EXPECT_LT(sent, size_t{4} << 20);
  EXPECT_FALSE(trainer.wait(0ms).has_value());
}

TEST_F(ExternalProducerTest, EndsInNextSegmentAndAtNextStart) {
  const std::string config = external_config("capacity: 1000, num_threads: 1");
  {
    Process trainer = this->trainer(config, run_dir());
    ProducerClient client = connect(hello("sim"));
    ASSERT_EQ(client.read_offset(), 0u);
    client.send(records(16));
    ASSERT_TRUE(wait_until(60s, [&] { return has_step(1); })) << log_of("stokerd");
    const auto paused = ctl(run_dir(), {"pause"}, "pause").wait(30s);
    ASSERT_TRUE(paused && paused->code == 0) << log_of("pause");
    client.send(records(784));
    client.finish();
    EXPECT_EQ(client.read_offset(), records(16).size() + records(784).size());
    EXPECT_EQ(ProducerClient(socket(), kEndOfStream).read_line(), "{\"format\":1,\"end\":true}");
    const auto set = ctl(run_dir(), {"set", "feed.num_workers", "3"}, "set").wait(30s);
    ASSERT_TRUE(set && set->code == 0) << log_of("set");
    const auto resumed = ctl(run_dir(), {"resume"}, "resume").wait(30s);
    ASSERT_TRUE(resumed && resumed->code == 0) << log_of("resume");
    expect_end(trainer, 50);
  }
  Process again = this->trainer(config, run_dir());
  expect_end(again, 50);
}

TEST_F(ExternalProducerTest, EndsAlthoughWorkerThatWasAskedToIsKilled) {
  Process trainer = this->trainer(external_config("capacity: 1000, num_threads: 1"), run_dir());
  ProducerClient client = connect(hello("sim"));
  ASSERT_EQ(client.read_offset(), 0u);
  ASSERT_TRUE(wait_until(60s, [&] {
    const auto exit = ctl(run_dir(), {"pause"}, "pause").wait(30s);
    return exit && exit->code == 0;
  })) << log_of("pause");
  client.send(records(800));
  client.finish();
  EXPECT_EQ(client.read_offset(), records(800).size());
  EXPECT_EQ(ProducerClient(socket(), kEndOfStream).read_line(), "{\"format\":1,\"end\":true}");
  for (const pid_t worker : children_of(trainer.pid(), "stoker-feed"))
    (void)::kill(worker, SIGKILL);
  ASSERT_TRUE(wait_until(
      60s, [&] { return log_of("stokerd").find("worker process crashed") != std::string::npos; }));
  const auto resumed = ctl(run_dir(), {"resume"}, "resume").wait(30s);
  ASSERT_TRUE(resumed.has_value());
  EXPECT_EQ(resumed->code, 0) << log_of("resume");
  expect_end(trainer, 50);
}

TEST_F(ExternalProducerTest, MatchesUninterruptedRunWhenEverythingIsKilled) {
  if (!has_python()) GTEST_SKIP() << "no python3";
  const std::vector<std::string> generated{"--generate", "1000000"};
  const std::string config = external_config("queue: fifo, capacity: 300, num_threads: 1");
  std::optional<Process> sim(std::in_place, producer(run_dir(), "sim", generated));
  for (int kills = 0; kills < 4; ++kills) {
    const Progress before = progress_of(run_dir());
    Process trainer = this->trainer(config, run_dir(), until(kEndless));
    ASSERT_FALSE(wait_for(KillPoint::kCheckpointSaved, trainer, run_dir(), before).has_value())
        << log_of("stokerd");
    const size_t recorded = num_records(run_dir());
    if (kills % 3 == 1)
      for (const pid_t worker : children_of(trainer.pid(), "stoker-feed"))
        (void)::kill(worker, SIGKILL);
    if (kills % 3 == 2) {
      (void)sim->kill();
      sim.reset();
      sim.emplace(producer(run_dir(), "sim", generated));
    }
    if (kills % 3 != 0) {
      EXPECT_TRUE(wait_until(60s, [&] { return num_records(run_dir()) > recorded; }));
    }
    ASSERT_TRUE(trainer.kill());
  }
  const uint64_t last = newest_step(run_dir()) + 500;
  ASSERT_EQ(train(config, run_dir(), until(last)).code, 0) << log_of("stokerd");
  {
    Process other = producer(run_dir("uninterrupted"), "sim", generated);
    ASSERT_EQ(train(config, run_dir("uninterrupted"), until(last)).code, 0) << log_of("stokerd");
    const auto end = other.wait(60s);  // it had more to send
    ASSERT_TRUE(end.has_value());
    EXPECT_EQ(end->code, 0);
    EXPECT_THAT(text_of(other.log()), HasSubstr("the run has finished: max_steps reached"));
  }
  expect_same_result(run_dir(), run_dir("uninterrupted"), last);
}

TEST_F(ExternalProducerTest, UsesEachRecordOnceWithSeveralProducers) {
  if (!has_python()) GTEST_SKIP() << "no python3";
  constexpr int kRecords = 8000;  // of each
  std::ofstream(path("records.jsonl")) << records(kRecords);
  const std::string config =
      external_config("queue: random_shuffle, capacity: 200, num_threads: 2");
  std::vector<Process> producers;
  const auto start_producers = [&] {
    producers.clear();
    for (const char* const name : {"a", "b", "c"})
      producers.push_back(producer(run_dir(), name, {path("records.jsonl")}));
  };
  // Kills, first of stokerd, then of its worker. After the first one, a producer that had finished
  // must be started again.
  start_producers();
  {
    const Progress before = progress_of(run_dir());
    Process trainer = this->trainer(config, run_dir());
    ASSERT_FALSE(wait_for(KillPoint::kCheckpointSaved, trainer, run_dir(), before).has_value())
        << log_of("stokerd");
    ASSERT_TRUE(trainer.kill());
  }
  start_producers();
  const Progress before = progress_of(run_dir());
  Process trainer = this->trainer(config, run_dir());
  ASSERT_FALSE(wait_for(KillPoint::kTrainingStarted, trainer, run_dir(), before).has_value())
      << log_of("stokerd");
  for (const pid_t worker : children_of(trainer.pid(), "stoker-feed"))
    (void)::kill(worker, SIGKILL);
  for (Process& producer : producers) {
    const auto exit = producer.wait(90s);
    ASSERT_TRUE(exit.has_value()) << log_of("stokerd") << text_of(producer.log());
    EXPECT_EQ(exit->code, 0) << text_of(producer.log());
  }
  const auto end =
      Process({"python3", STOKER_STREAM_PRODUCER, run_dir(), "--end"}, path("end.out")).wait(60s);
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->code, 0) << log_of("end");
  const auto ended = trainer.wait(60s);
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->code, 0) << log_of("stokerd");
  EXPECT_EQ(reason(run_dir()), "data exhausted");
  EXPECT_EQ(newest_step(run_dir()) * 16 + queued(run_dir()), 3u * kRecords);
  EXPECT_THAT(log_of("stokerd"), Not(HasSubstr("stream records lost")));
}

TEST_F(ExternalProducerTest, ContinuesWithRecordsOfProducerThatHasGone) {
  const std::string config = external_config();
  {
    Process trainer = this->trainer(config, run_dir());
    ProducerClient client = connect(hello("gone", false));
    client.send(records(85));
    ASSERT_TRUE(wait_until(60s, [&] { return has_step(5); })) << log_of("stokerd");
    trainer.signal(SIGTERM);
    ASSERT_TRUE(trainer.wait(60s).has_value());
  }
  Process trainer = this->trainer(config, run_dir());
  ProducerClient other = connect(hello("other"));
  EXPECT_EQ(other.read_offset(), 0u);
  other.send(records(27));
  other.close();
  EXPECT_FALSE(ProducerClient(socket(), kEndOfStream).read_line().empty());
  expect_end(trainer, 7);
  EXPECT_THAT(log_of("stokerd"), Not(HasSubstr("lost")));
}

// A producer that cannot send again and has gone: what the run has taken of it is used, although the run
// is stopped before its first batch, also if it has a checkpoint from before it.
TEST_F(ExternalProducerTest, ContinuesWithRecordsFromBeforeFirstStep) {
  for (const bool saves_at_start : {false, true}) {
    const std::string run = run_dir(saves_at_start ? "saved" : "unsaved");
    const std::vector<std::string> options{
        "--set", "checkpoint.save_at_start=" + std::string(saves_at_start ? "true" : "false")};
    {
      Process trainer = this->trainer(external_config(), run, options);
      ProducerClient client = connect_to(run, hello("gone", false));
      ASSERT_EQ(client.read_offset(), 0u);
      client.send(records(13));
      client.finish();
      EXPECT_EQ(client.read_offset(), records(13).size());
      trainer.signal(SIGTERM);
      const auto stopped = trainer.wait(60s);
      ASSERT_TRUE(stopped.has_value());
      EXPECT_EQ(stopped->code, 0) << log_of("stokerd");
    }
    EXPECT_EQ(checkpoints(run).size(), saves_at_start ? 1u : 0u);
    Process trainer = this->trainer(external_config(), run, options);
    ProducerClient other = connect_to(run, hello("other"));
    EXPECT_EQ(other.read_offset(), 0u);
    other.send(records(5));
    other.close();
    // It is told what the run has of it.
    ProducerClient again = connect_to(run, hello("gone", false));
    EXPECT_EQ(again.read_offset(), records(13).size());
    again.close();
    EXPECT_FALSE(ProducerClient(socket_of(run), kEndOfStream).read_line().empty());
    expect_end(trainer, 1, run);
    EXPECT_THAT(log_of("stokerd"), Not(HasSubstr("lost")));
  }
}

// Of a producer that cannot send again and does not stop sending. What the socket has accepted is used,
// in a run that is stopped before its first step and in one that is restarted in the middle.
TEST_F(ExternalProducerTest, LosesNothingThatASocketHasAcceptedOnStop) {
  constexpr int kRecords = 16 * 3500;
  const std::string text = records(kRecords);
  const std::string config = external_config("capacity: 64, num_threads: 1");
  size_t sent = 0;
  for (int stop = 0; stop < 2; ++stop) {
    Process trainer = this->trainer(config, run_dir());
    ProducerClient client = connect(hello("live", false));
    client.set_send_buffer(1 << 16);
    // After the second start, this waits until most of the first part was used.
    ASSERT_EQ(client.read_offset(), sent) << log_of("stokerd");
    ASSERT_TRUE(wait_until(60s, [&] {
      const auto exit = ctl(run_dir(), {"pause"}, "pause").wait(30s);
      return exit && exit->code == 0;
    })) << log_of("pause");
    int full = 0;  // times in a row
    ASSERT_TRUE(wait_until(60s, [&] {
      const size_t now = client.send_available(std::string_view(text).substr(sent));
      sent += now;
      full = now == 0 ? full + 1 : 0;
      return full == 10;
    }));
    ASSERT_LT(sent, text.size());
    trainer.signal(SIGTERM);
    const auto stopped = trainer.wait(60s);
    ASSERT_TRUE(stopped.has_value());
    EXPECT_EQ(stopped->code, 0) << log_of("stokerd");
    // A record of which a part was sent is to be sent again.
    const size_t end = text.rfind('\n', sent - 1) + 1;
    EXPECT_FALSE(client.send(std::string_view(text).substr(sent)));
    sent = end;
  }
  Process trainer = this->trainer(config, run_dir());
  ProducerClient client = connect(hello("live", false));
  ASSERT_EQ(client.read_offset(), sent) << log_of("stokerd");
  ASSERT_TRUE(client.send(std::string_view(text).substr(sent)));
  client.finish();
  EXPECT_EQ(client.read_offset(), text.size());
  EXPECT_FALSE(ProducerClient(socket(), kEndOfStream).read_line().empty());
  expect_end(trainer, kRecords / 16);
  EXPECT_THAT(log_of("stokerd"), Not(HasSubstr("lost")));
}

TEST_F(ExternalProducerTest, LogsLossOfProducerThatCannotReplay) {
  const std::string config = external_config();
  {
    Process trainer = this->trainer(config, run_dir(), {"--set", "checkpoint.save_every_steps=4"});
    ProducerClient client = connect(hello("live", false));
    client.send(records(16 * 4));
    ASSERT_TRUE(wait_until(60s, [&] { return newest_step(run_dir()) == 4; })) << log_of("stokerd");
    client.send(records(16));
    ASSERT_TRUE(wait_until(60s, [&] { return has_step(5); })) << log_of("stokerd");
    ASSERT_TRUE(trainer.kill());
  }
  Process trainer = this->trainer(config, run_dir());
  // The worker process that is ending can accept a connection, too.
  std::optional<ProducerClient> client;
  ASSERT_TRUE(wait_until(60s, [&] {
    client.emplace(connect(hello("live", false)));
    return client->read_offset().has_value();
  })) << log_of("stokerd");
  client->send(records(16));
  client->close();
  EXPECT_TRUE(wait_until(60s, [&] { return has_step(5); })) << log_of("stokerd");
  EXPECT_FALSE(ProducerClient(socket(), kEndOfStream).read_line().empty());
  expect_end(trainer, 5);
  EXPECT_THAT(log_of("stokerd"),
              HasSubstr("stream records possibly lost producer=live after_record=64 "));
}

TEST_F(ExternalProducerTest, FailsIfAnotherProgramListensOnTheSocket) {
  ASSERT_EQ(::mkdir(run_dir().c_str(), 0755), 0);
  const auto other = data::stream::testing::listen_at(socket());
  EXPECT_EQ(train(external_config(), run_dir()).code, 78);
  EXPECT_THAT(log_of("stokerd"),
              AllOf(HasSubstr("socket of external producers " + socket()),
                    HasSubstr("process " + std::to_string(::getpid()) + " listens there")));
}

}  // namespace
}  // namespace stoker::test
