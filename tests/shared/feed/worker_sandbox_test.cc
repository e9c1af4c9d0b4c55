// With real processes: stoker-feed, and request_worker_test_program.cc for faults.
#include "shared/feed/worker_sandbox.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <new>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "feeder/sandbox.h"
#include "shared/base/file.h"
#include "shared/config/load_config.h"
#include "shared/data/files/scan.h"
#include "shared/data/pipeline/open_dataset.h"
#include "shared/feed/sandboxed_dataset.h"
#include "shared/feed/worker_process.h"
#include "shared/image/add_restart_markers.h"
#include "tests/shared/data/folder_fixture.h"
#include "tests/shared/feed/faulty_sample.h"
#include "tests/shared/image/image_files.h"
#include "tests/support/logged_text.h"
#include "tests/support/machine_slowness.h"
#include "tests/support/tokenizer_files.h"

namespace stoker::feed {
namespace {

using image::testing::bytes_of;
using image::testing::encode_jpeg;
using image::testing::pattern;
using test::count_of;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string rewritten(const std::string& file) {
  const auto result = image::add_restart_markers(bytes_of(file), image::kRewritingLimits);
  EXPECT_TRUE(result.has_value());
  return {reinterpret_cast<const char*>(result->data()), result->size()};
}

std::vector<pid_t> child_processes() {
  std::vector<pid_t> children;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream file(entry.path() / "stat");
    const std::string stat{std::istreambuf_iterator<char>(file), {}};
    std::istringstream after_name(stat.substr(std::min(stat.size(), stat.rfind(')') + 1)));
    char state = 0;
    pid_t parent = 0;
    if (after_name >> state >> parent && parent == ::getpid()) children.push_back(std::stoi(name));
  }
  return children;
}

// A folder of images, one of which triggers the faults of request_worker_test_program.
class WorkerSandboxTest : public data::testing::FolderFixture {
 protected:
  void SetUp() override {
    ::setenv("STOKER_TEST_STARTS", path("starts").c_str(), 1);
    ::setenv("STOKER_TEST_ARMED", path("armed").c_str(), 1);
    write("data/a/0.jpg", photograph_);
    write("data/a/1.jpg", faulty_);
    write("data/b/2.jpg", progressive_);
    write("data/b/3.jpg", photograph_.substr(0, photograph_.size() / 2));
    write("data/b/4.png", image::testing::encode_png_file(pattern(5, 5)));
  }
  void TearDown() override {
    EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a process is left";
    ::unsetenv("STOKER_TEST_STARTS");
    ::unsetenv("STOKER_TEST_ARMED");
    FolderFixture::TearDown();
  }

  config::Config parse(const std::string& name, const std::string& yaml,
                       const std::string& feed) const {
    const std::string other = name == "train" ? "" : "\n  " + name + ": " + yaml;
    const auto config = config::parse_config("data:\n  train: " + yaml + other + "\nfeed: " + feed +
                                                 "\nmodel: {name: mlp, hidden_sizes: [8]}\n"
                                                 "task: {name: classification}\n",
                                             "test.yaml", {});
    EXPECT_TRUE(config.ok()) << config.status().to_string();
    return *config;
  }
  config::Config packed(const std::string& name, const std::string& feed = "{}") const {
    return parse(
        name,
        "{format: image_folder, path: " + path("data") +
            ", glob: \"**/*\", transforms: [resize: {size: [8, 8]}], cache: {type: packed, "
            "jpeg_restart_markers: true}}",
        feed);
  }
  // Indexes data.NAME.
  Status open(const std::string& name, const config::Config& config, const std::string& program,
              const data::files::ScanProgress& progress = {}) const {
    const auto sandbox = make_sandbox(config, program);
    return data::pipeline::open_dataset(name, config.data, index_dir(), progress, 0, sandbox.get())
        .status();
  }
  // Indexes with the test program, whose fault is `name`, and returns the log.
  static std::string timeout_of(double seconds) {
    return "{worker_timeout_seconds: " + std::to_string(test::scaled_seconds(seconds)) + "}";
  }
  std::string open_faulty(const std::string& name, const std::string& feed = "{}") const {
    ::testing::internal::CaptureStderr();
    const Status opened = open(name, packed(name, feed), REQUEST_WORKER_TEST_PROGRAM);
    const std::string log = ::testing::internal::GetCapturedStderr();
    EXPECT_TRUE(opened.ok()) << opened.to_string();
    return log;
  }
  std::string pack(const std::string& name) const {
    return content_of(".index/" + name + ".files.packed_restart");
  }
  size_t num_starts() const { return std::filesystem::file_size(path("starts")); }

  const std::string photograph_ = encode_jpeg(pattern(150, 230));
  const std::string progressive_ = encode_jpeg(pattern(200, 120), {.progressive = true});
  const std::string faulty_ = encode_jpeg(pattern(120, 130)) + std::string(kFaultyEnd);
};

// ---- Packed caches

TEST_F(WorkerSandboxTest, PacksSameBytesAsThisProcess) {
  ASSERT_TRUE(open("inside", packed("inside", "{num_processes: 0}"), "/does/not/exist").ok());
  ::testing::internal::CaptureStderr();
  const Status opened = open("outside", packed("outside"), FEED_PROGRAM);
  const std::string log = ::testing::internal::GetCapturedStderr();
  ASSERT_TRUE(opened.ok()) << opened.to_string();
  const size_t images = rewritten(photograph_).size() + rewritten(faulty_).size();
  ASSERT_GT(pack("inside").size(), images);
  EXPECT_THAT(pack("inside"), StartsWith(rewritten(photograph_) + rewritten(faulty_)));
  EXPECT_EQ(pack("outside"), pack("inside"));
  EXPECT_THAT(log, AllOf(HasSubstr("num_failed=0"), Not(HasSubstr("image not rewritten"))));
}

struct RewritingFault {
  const char* mode;
  const char* reason;
  bool needs_filter = false;
};

class FaultyFileTest : public WorkerSandboxTest,
                       public ::testing::WithParamInterface<RewritingFault> {};

TEST_P(FaultyFileTest, IsPackedUnchangedAndLoggedOnce) {
  if (GetParam().needs_filter && feeder::kSanitized) GTEST_SKIP() << "there is no sandbox";
  const std::string log = open_faulty(GetParam().mode, timeout_of(0.4));
  EXPECT_EQ(count_of(log, "image not rewritten"), 1u) << log;
  EXPECT_THAT(log, AllOf(HasSubstr(path("data/a/1.jpg")), HasSubstr(GetParam().reason),
                         HasSubstr("num_failed=1")));
  EXPECT_THAT(pack(GetParam().mode),
              StartsWith(rewritten(photograph_) + faulty_ + rewritten(progressive_)));
}

INSTANTIATE_TEST_SUITE_P(Faults, FaultyFileTest,
                         ::testing::Values(RewritingFault{"crashes", "signal 11"},
                                           RewritingFault{"makes_call", "system call", true},
                                           RewritingFault{"needs_memory", "needs more memory",
                                                          true},
                                           RewritingFault{"spins", "timeout, computing"},
                                           RewritingFault{"stops", "timeout, stopped"},
                                           RewritingFault{"another_size", "sent another image"},
                                           RewritingFault{"no_image", "sent another image"}),
                         [](const auto& test) { return std::string(test.param.mode); });

TEST_F(WorkerSandboxTest, PacksFilesUnchangedWhoseProcessClaimsTooManyBytes) {
  const std::string log = open_faulty("too_long");
  EXPECT_EQ(count_of(log, "sent an invalid reply"), 4u) << log;
  EXPECT_THAT(pack("too_long"), StartsWith(photograph_ + faulty_ + progressive_));
}

TEST_F(WorkerSandboxTest, TriesFileInTwoProcesses) {
  std::filesystem::remove_all(path("data/b"));
  std::filesystem::remove(path("data/a/0.jpg"));
  open_faulty("crashes", "{num_workers: 1}");
  EXPECT_EQ(num_starts(), 2u);
  EXPECT_THAT(pack("crashes"), StartsWith(faulty_));
}

TEST_F(WorkerSandboxTest, RewritesFileWhoseFirstProcessCrashed) {
  write("armed", "");
  const std::string log = open_faulty("crashes_once", "{num_workers: 1}");
  EXPECT_FALSE(std::filesystem::exists(path("armed")));
  EXPECT_EQ(num_starts(), 2u);
  EXPECT_THAT(log, AllOf(HasSubstr("num_failed=0"), Not(HasSubstr("image not rewritten"))));
  EXPECT_THAT(pack("crashes_once"), StartsWith(rewritten(photograph_) + rewritten(faulty_)));
}

TEST_F(WorkerSandboxTest, StartsAtMostOneProcessPerWorker) {
  for (int i = 0; i < 40; ++i) write("data/b/more" + std::to_string(i) + ".jpg", photograph_);
  size_t max_children = 0;
  const auto progress = [&](uint64_t, std::string_view) {
    max_children = std::max(max_children, child_processes().size());
  };
  ASSERT_TRUE(
      open("good", packed("good", "{num_workers: 3}"), REQUEST_WORKER_TEST_PROGRAM, progress).ok());
  EXPECT_LE(max_children, 3u);
  EXPECT_LE(num_starts(), 3u);
}

TEST_F(WorkerSandboxTest, StopsWhileProcessDoesNotAnswer) {
  const auto stop_if_spinning = [](uint64_t, std::string_view) {
    for (const pid_t child : child_processes())
      if (cpu_time(child) > std::chrono::milliseconds(300)) throw data::files::ScanStopped();
  };
  const auto config = packed("spins", "{worker_timeout_seconds: null}");
  const Status status = open("spins", config, REQUEST_WORKER_TEST_PROGRAM, stop_if_spinning);
  EXPECT_EQ(status.code(), StatusCode::kCancelled) << status.to_string();
  EXPECT_THAT(child_processes(), ::testing::IsEmpty());
  EXPECT_TRUE(has_no_index_files()) << "an incomplete file is left";
}

TEST_F(WorkerSandboxTest, ReportsWhyNoProcessCanBeStarted) {
  Status status = open("val", packed("val"), "/does/not/exist");
  EXPECT_EQ(status.code(), StatusCode::kNotFound) << status.to_string();
  EXPECT_THAT(status.message(), HasSubstr("/does/not/exist"));
  status = open("rejected", packed("rejected"), REQUEST_WORKER_TEST_PROGRAM);
  EXPECT_EQ(status.code(), StatusCode::kPermission) << status.to_string();
  EXPECT_THAT(status.message(), HasSubstr("add SystemCallFilter=seccomp"));
  status = open("fails", packed("fails"), REQUEST_WORKER_TEST_PROGRAM);
  EXPECT_EQ(status.code(), StatusCode::kInternal) << status.to_string();
  EXPECT_THAT(status.message(), HasSubstr("exit code 70"));
  EXPECT_TRUE(has_no_index_files());
}

// ---- One rewriter

TEST_F(WorkerSandboxTest, ReleasesMemoryForLargeFile) {
  const config::Config config = packed("train");
  const WorkerSandbox sandbox(config, FEED_PROGRAM);
  const auto rewriter = sandbox.make_rewriter("train");
  const auto rewrite = [&](const std::string& file) {
    const auto result = rewriter->rewrite(bytes_of(file), image::max_rewritten_bytes(file.size()));
    EXPECT_TRUE(result.ok()) << result.status().to_string();
    return result.ok() ? std::string(reinterpret_cast<const char*>(result->data()), result->size())
                       : "";
  };
  EXPECT_EQ(rewrite(photograph_), rewritten(photograph_));
  EXPECT_EQ(child_processes().size(), 1u);
  EXPECT_EQ(rewrite(photograph_ + std::string(20 << 20, '\0')), rewritten(photograph_));
  EXPECT_EQ(child_processes().size(), 0u);
  EXPECT_EQ(rewrite(photograph_), rewritten(photograph_));
}

TEST_F(WorkerSandboxTest, KeepsProcessForFilesOfSeveralMegabytes) {
  std::filesystem::remove_all(path("data/b"));
  std::filesystem::remove(path("data/a/1.jpg"));
  for (const int megabytes : {5, 9, 6, 12, 1, 8})
    write("data/b/" + std::to_string(megabytes) + ".jpg",
          photograph_ + std::string(static_cast<size_t>(megabytes) << 20, '\0'));
  open_faulty("good", "{num_workers: 1}");
  EXPECT_LE(num_starts(), 2u) << "one with the usual memory, one with more";
  EXPECT_EQ(pack("good").substr(0, rewritten(photograph_).size()), rewritten(photograph_));
}

TEST_F(WorkerSandboxTest, StartsNoProcessForImagesThatAreNeverRewritten) {
  std::filesystem::remove_all(path("data"));
  write("data/b/small.jpg", encode_jpeg(pattern(80, 200)));
  write("data/b/cmyk.jpg", encode_jpeg(image::testing::gradient(120, 120, 4)));
  write("data/b/image.png", image::testing::encode_png_file(pattern(120, 120)));
  write("data/b/cut.jpg", photograph_.substr(0, 20));
  open_faulty("good");
  EXPECT_FALSE(std::filesystem::exists(path("starts")));
}

TEST_F(WorkerSandboxTest, RewritesNothingAfterStop) {
  const config::Config config = packed("train");
  const WorkerSandbox sandbox(config, FEED_PROGRAM);
  const auto rewriter = sandbox.make_rewriter("train");
  rewriter->stop();
  EXPECT_EQ(rewriter->rewrite(bytes_of(photograph_), 1 << 20).status().code(),
            StatusCode::kCancelled);
}

// ---- Text

class TokenizingTest : public WorkerSandboxTest {
 protected:
  void SetUp() override {
    WorkerSandboxTest::SetUp();
    write("t.json", test::to_json(test::small_tokenizer()));
    for (int i = 0; i < 3; ++i) write("text/" + std::to_string(i), "to be\n\xff or not to be");
  }
  config::Config text(const std::string& name = "train", int num_workers = 2) const {
    const std::string dataset = "{format: text, path: " + path("text") +
                                ", tokenizer: {path: " + path("t.json") +
                                "}, sequence: {block_size: 4}}";
    const std::string other = name == "train" ? "" : ", " + name + ": " + dataset;
    const auto config = config::parse_config(
        "data: {train: " + dataset + other +
            "}\nfeed: {num_workers: " + std::to_string(num_workers) + "}\nmodel: {name: gpt}\n",
        "test.yaml", {});
    EXPECT_TRUE(config.ok()) << config.status().to_string();
    return *config;
  }
  // Several windows, so that each process has one.
  void write_long_text() const {
    std::string content;
    while (content.size() < (4u << 20)) content += "to be or not to be\n";
    write("text/long", content);
  }
  // The tokens, in files next to the index of a folder.
  std::string tokens_in(const std::string& folder) const {
    std::string tokens;
    const auto names = list_directory(path(folder));
    EXPECT_TRUE(names.ok());
    for (const std::string& name : *names)
      if (name.ends_with(".tokens")) tokens += content_of(folder + '/' + name);
    EXPECT_FALSE(tokens.empty());
    return tokens;
  }
  // Encodes in this process.
  std::string expected_tokens() const {
    const auto data = data::pipeline::open_dataset("train", text().data, path("expected"), {});
    EXPECT_TRUE(data.ok()) << data.status().to_string();
    return tokens_in("expected");
  }
};

TEST_F(TokenizingTest, EncodesTextInWorkerProcess) {
  const config::Config config = text();
  const auto sandbox = make_sandbox(config, FEED_PROGRAM);
  size_t num_workers = 0;
  const auto progress = [&](uint64_t, std::string_view) {
    num_workers = std::max(num_workers, child_processes().size());
  };
  const auto data =
      data::pipeline::open_dataset("train", config.data, index_dir(), progress, 0, sandbox.get());
  ASSERT_TRUE(data.ok()) << data.status().to_string();
  EXPECT_EQ(num_workers, 1u);
  const auto expected = data::pipeline::open_dataset("train", config.data, path("other"), {});
  ASSERT_TRUE(expected.ok()) << expected.status().to_string();
  ASSERT_EQ((*data)->size(), (*expected)->size());
  for (uint64_t sample = 0; sample < (*data)->size(); ++sample)
    EXPECT_EQ(data::testing::read_sample(**data, sample).tensors,
              data::testing::read_sample(**expected, sample).tensors);
}

TEST_F(TokenizingTest, StartsAtMostOneProcessPerWorker) {
  write_long_text();
  size_t max_children = 0;
  const auto progress = [&](uint64_t, std::string_view) {
    max_children = std::max(max_children, child_processes().size());
  };
  ASSERT_TRUE(open("train", text("train", 3), FEED_PROGRAM, progress).ok());
  EXPECT_GE(max_children, 1u);
  EXPECT_LE(max_children, 3u);
  EXPECT_EQ(tokens_in(".index"), expected_tokens());
}

TEST_F(TokenizingTest, EncodesTextAgainWhoseProcessIsKilled) {
  write_long_text();
  bool is_killed = false;
  const auto kill_one = [&](uint64_t, std::string_view) {
    for (const pid_t child : child_processes())
      if (!is_killed) is_killed = ::kill(child, SIGKILL) == 0;
  };
  const Status opened = open("train", text(), FEED_PROGRAM, kill_one);
  EXPECT_TRUE(is_killed);
  EXPECT_TRUE(opened.ok()) << opened.to_string();
  EXPECT_EQ(tokens_in(".index"), expected_tokens());
}

TEST_F(TokenizingTest, EncodesTextAgainWhoseProcessCrashed) {
  write("armed", "");
  const Status opened = open("crashes_once", text("crashes_once"), REQUEST_WORKER_TEST_PROGRAM);
  EXPECT_TRUE(opened.ok()) << opened.to_string();
  EXPECT_FALSE(std::filesystem::exists(path("armed")));
  EXPECT_EQ(num_starts(), 2u);
  EXPECT_EQ(tokens_in(".index"), expected_tokens());
}

TEST_F(TokenizingTest, ReportsTextThatCrashesItsProcess) {
  const Status status = open("crashes_always", text("crashes_always"), REQUEST_WORKER_TEST_PROGRAM);
  EXPECT_EQ(status.code(), StatusCode::kCorrupt) << status.to_string();
  EXPECT_THAT(status.message(), AllOf(HasSubstr(path("text/0") + ": the text at offset 0: "),
                                      HasSubstr("signal 11")));
  EXPECT_EQ(num_starts(), 2u);
}

TEST_F(TokenizingTest, CountsTokensOfRecordsInWorkerProcess) {
  write("r.jsonl", "{\"t\": \"to be\"}\n{\"t\": \"or not to be, to be\"}\n{\"t\": \"to\"}\n");
  const auto config = config::parse_config(
      "data: {train: {format: jsonl, path: " + path("r.jsonl") +
          ", tokenizer: {path: " + path("t.json") +
          "}, fields: {text: t}, sequence: {max_length: 40}}}\nmodel: {name: gpt}\n",
      "test.yaml", {});
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  const auto sandbox = make_sandbox(*config, FEED_PROGRAM);
  const auto data =
      data::pipeline::open_dataset("train", config->data, index_dir(), {}, 0, sandbox.get());
  ASSERT_TRUE(data.ok()) << data.status().to_string();
  const auto expected = data::pipeline::open_dataset("train", config->data, path("other"), {});
  ASSERT_TRUE(expected.ok()) << expected.status().to_string();
  ASSERT_EQ((*data)->size(), 3u);
  for (uint64_t sample = 0; sample < 3; ++sample)
    EXPECT_EQ((*data)->length(sample), (*expected)->length(sample));
}

TEST_F(TokenizingTest, RejectsTokenizerThatHasChanged) {
  const config::Config config = text();
  const WorkerSandbox sandbox(config, FEED_PROGRAM);
  const auto tokenizer =
      sandbox.make_tokenizer("train", std::string(64, 'a'), 0, [] { return false; });
  const auto part = tokenizer->tokenize("to be", true, true);
  EXPECT_EQ(part.status().code(), StatusCode::kMismatch) << part.status().to_string();
  EXPECT_THAT(part.status().message(), HasSubstr("the tokenizer's file has changed; restart"));
}

TEST_F(TokenizingTest, ReportsTextThatExceedsLimits) {
  auto file = test::small_tokenizer();
  file.pre_tokenizer =
      R"({"type": "Sequence", "pretokenizers": [{"type": "Split", "behavior": "Isolated", "pattern": )"
      R"({"Regex": "(?:a+)+\\p{N}"}}, {"type": "ByteLevel", "add_prefix_space": false}]})";
  write("t.json", test::to_json(file));
  write("text/1", std::string(50, 'a') + "c");
  const config::Config config = text();
  const Status status = open("train", config, FEED_PROGRAM);
  EXPECT_EQ(status.code(), StatusCode::kCorrupt) << status.to_string();
  EXPECT_THAT(status.message(), HasSubstr(path("text/1") + ": the text at offset 0: "));
  EXPECT_THAT(status.message(), HasSubstr("takes too long"));
}

// ---- Descriptions

TEST_F(WorkerSandboxTest, DescribesSameRandomRegionsAsThisProcess) {
  const auto config =
      parse("val",
            "{format: image_folder, path: " + path("data") +
                ", glob: \"**/*.jpg\", transforms: [random_resized_crop: {size: [8, 8]}]}",
            "{}");
  auto data = data::pipeline::open_dataset("val", config.data, index_dir(), {});
  ASSERT_TRUE(data.ok()) << data.status().to_string();
  const auto reader = SandboxedDataset::open(
      config, {.dataset = "val", .index_dir = index_dir(), .feed_program = FEED_PROGRAM}, **data);
  ASSERT_TRUE(reader.ok()) << reader.status().to_string();
  for (uint64_t sample = 0; sample < 4; ++sample) {
    const data::RandomKey key{.seed = 3, .epoch = 1, .sample = sample};
    const std::string text = (*data)->info().maybe_files->describe_transforms(sample, key);
    EXPECT_THAT(text, StartsWith("crop="));
    EXPECT_EQ((*reader)->info().maybe_files->describe_transforms(sample, key), text);
  }
}

// ---- Failures of the threads

class ThrowingSandbox final : public data::Sandbox {
 public:
  using Throw = void (*)();
  explicit ThrowingSandbox(Throw do_throw) : throw_(do_throw) {}

  class Rewriter final : public data::JpegRewriter {
   public:
    explicit Rewriter(Throw do_throw) : throw_(do_throw) {}
    Result<std::vector<std::byte>> rewrite(std::span<const std::byte>, uint64_t) override {
      throw_();
      return std::vector<std::byte>();
    }
    void stop() override {}

   private:
    const Throw throw_;
  };
  std::unique_ptr<data::JpegRewriter> make_rewriter(const std::string&) const override {
    return std::make_unique<Rewriter>(throw_);
  }
  std::unique_ptr<data::TextTokenizer> make_tokenizer(const std::string&, const std::string&,
                                                      uint64_t,
                                                      std::function<bool()>) const override {
    return nullptr;
  }
  size_t max_processes() const override { return 1; }
  Result<std::unique_ptr<data::Dataset>> open_reader(const std::string&, const std::string&,
                                                     const data::Dataset&,
                                                     std::function<void()>) const override {
    return Status(StatusCode::kInternal, "not used");
  }

 private:
  const Throw throw_;
};

TEST_F(WorkerSandboxTest, ReportsExhaustedMemoryOfThreads) {
  const ThrowingSandbox sandbox([] { throw std::bad_alloc(); });
  const auto config = packed("train");
  const auto opened =
      data::pipeline::open_dataset("train", config.data, index_dir(), {}, 0, &sandbox);
  EXPECT_EQ(opened.status().code(), StatusCode::kOutOfMemory) << opened.status().to_string();
  EXPECT_THAT(opened.status().message(), HasSubstr(path("data/")));
  EXPECT_TRUE(has_no_index_files());
}

TEST_F(WorkerSandboxTest, ReportsAnyExceptionOfThreads) {
  const ThrowingSandbox sandbox([] { throw 1; });
  const auto config = packed("train");
  const auto opened =
      data::pipeline::open_dataset("train", config.data, index_dir(), {}, 0, &sandbox);
  EXPECT_EQ(opened.status().code(), StatusCode::kInternal) << opened.status().to_string();
  EXPECT_TRUE(has_no_index_files());
}

// ---- Samples of a new index

class SampleValidationTest : public WorkerSandboxTest {
 protected:
  config::Config records(const std::string& name, const std::string& fields,
                         const std::string& feed = "{}") const {
    write("records.jsonl", "{\"x\": [1, 2], \"y\": 1}\n{\"x\": [3, 4], \"y\": 0}\n");
    return parse(name, "{format: jsonl, path: " + path("records.jsonl") + fields + "}", feed);
  }
};

TEST_F(SampleValidationTest, ReadsSamplesInProcess) {
  const std::string fields = ", fields: {input: x, label: y}";
  ASSERT_TRUE(
      open("good", records("good", fields + ", input_shape: [2]"), REQUEST_WORKER_TEST_PROGRAM)
          .ok());
  EXPECT_EQ(num_starts(), 1u);
  const Status inside = open("val", records("val", fields, "{num_processes: 0}"), "");
  EXPECT_EQ(num_starts(), 1u);
  std::filesystem::remove_all(index_dir());
  const Status outside = open("val", records("val", fields), FEED_PROGRAM);
  EXPECT_EQ(outside.code(), StatusCode::kCorrupt);
  EXPECT_THAT(outside.message(), HasSubstr("none of 2 inspected samples fits"));
  EXPECT_EQ(outside.message(), inside.message());
}

TEST_F(SampleValidationTest, IsRepeatedUntilItHasSucceeded) {
  const std::string fields = ", fields: {input: x, label: y}";
  const auto unfit = records("val", fields, "{num_processes: 0}");
  const Status first = open("val", unfit, "");
  EXPECT_EQ(first.code(), StatusCode::kCorrupt) << first.to_string();
  EXPECT_EQ(open("val", unfit, "").message(), first.message());
  // The index is written, but no process reads its samples.
  const auto good = records("good", fields + ", input_shape: [2]");
  EXPECT_EQ(open("good", good, "/does/not/exist").code(), StatusCode::kNotFound);
  for (int start = 0; start < 2; ++start)
    EXPECT_TRUE(open("good", good, REQUEST_WORKER_TEST_PROGRAM).ok()) << start;
  EXPECT_EQ(num_starts(), 1u);
}

TEST_F(SampleValidationTest, ReportsSamplesThatCrashTheirProcess) {
  const Status status =
      open("crashes_always",
           records("crashes_always", ", fields: {input: x, label: y}, input_shape: [2]"),
           REQUEST_WORKER_TEST_PROGRAM);
  EXPECT_EQ(status.code(), StatusCode::kCorrupt) << status.to_string();
  EXPECT_THAT(status.message(), AllOf(HasSubstr("none of 2 inspected samples"),
                                      HasSubstr(path("records.jsonl")), HasSubstr("signal 11")));
}

TEST_F(SampleValidationTest, StopsWhileProcessDoesNotAnswer) {
  const auto config = records("stops_always", ", fields: {input: x, label: y}, input_shape: [2]",
                              "{worker_timeout_seconds: null}");
  const auto stop_if_stopped = [](uint64_t, std::string_view) {
    for (const pid_t child : child_processes())
      if (process_state(child) == "stopped") throw data::files::ScanStopped();
  };
  const Status status = open("stops_always", config, REQUEST_WORKER_TEST_PROGRAM, stop_if_stopped);
  EXPECT_EQ(status.code(), StatusCode::kCancelled) << status.to_string();
}

}  // namespace
}  // namespace stoker::feed
