#include <sys/mman.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <random>

#include <gtest/gtest.h>

#include "shared/base/hash.h"
#include "shared/checkpoint/export_tensors.h"
#include "shared/checkpoint/safetensors.h"
#include "tests/shared/checkpoint/checkpoint_fixture.h"
#include "tests/support/python_script.h"
#include "tests/support/temporary_directory.h"

namespace stoker::checkpoint {
namespace {

class SafetensorsPythonTest : public ::testing::Test {
 protected:
  // Output of the script; nullopt if Python or its packages are missing.
  static std::optional<std::string> maybe_run(const std::string& verb, const std::string& path) {
    const auto answer = test::try_run_python(STOKER_SAFETENSORS_PY, {verb, path});
    if (!answer) return std::nullopt;
    EXPECT_EQ(answer->code, 0) << answer->err;
    return answer->out;
  }
  static bool is_accepted(const std::string& content) {
    UniqueFd fd(::memfd_create("offered", MFD_CLOEXEC));
    EXPECT_TRUE(
        default_file_system().write(fd.get(), std::as_bytes(std::span(content)), "offered").ok());
    return SafetensorsFile::open_fd(std::move(fd), "offered").ok();
  }
  // Stores the file for Python if stoker accepts it: stoker must have rejected all files that
  // Python rejects.
  void write_candidate(const std::string& content) {
    ++candidates_dir_;
    if (!is_accepted(content)) return;
    test::write_whole(accepted_dir_ + "/" + std::to_string(accepted_++), content);
  }
  // The same lines as the script's output.
  static std::string lines_of(const SafetensorsFile& file) {
    std::vector<std::string> lines;
    for (const TensorSpec& spec : file.tensors()) {
      std::string bytes(spec.bytes(), '\0');
      const Status status = file.read(spec.name, std::as_writable_bytes(std::span(bytes)));
      EXPECT_TRUE(status.ok()) << status.to_string();
      lines.push_back(to_string(spec) + " " + sha256_hex(bytes));
    }
    std::sort(lines.begin(), lines.end());
    std::string text;
    for (const std::string& line : lines) text += line + "\n";
    return text;
  }
  void SetUp() override { std::filesystem::create_directory(accepted_dir_); }
  std::string write_with_stoker() {
    const auto written = write_safetensors(default_file_system(), scratch_.path(), "ours",
                                           views_of(one_of_each_dtype()), {{"format", "pt"}});
    EXPECT_TRUE(written.ok()) << written.status().to_string();
    return scratch_ / "ours";
  }

  test::TemporaryDirectory scratch_;
  const std::string accepted_dir_ = scratch_ / "accepted";
  int candidates_dir_ = 0, accepted_ = 0;
};

#define RUN_OR_SKIP(answer, verb, path)                                            \
  const auto answer = maybe_run((verb), (path));                                   \
  if (!answer)                                                                     \
  GTEST_SKIP() << "set STOKER_PYTHON to a Python that can import safetensors and " \
                  "numpy"

TEST_F(SafetensorsPythonTest, LoadsStokerFile) {
  const std::string path = write_with_stoker();
  RUN_OR_SKIP(answer, "read", path);
  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(*answer, lines_of(**file));
}

TEST_F(SafetensorsPythonTest, LoadsStokerFileIntoPyTorch) {
  const std::string path = write_with_stoker();
  RUN_OR_SKIP(answer, "torch", path);
}

TEST_F(SafetensorsPythonTest, WritesFileReadableByStoker) {
  const std::string path = scratch_ / "theirs";
  RUN_OR_SKIP(answer, "write", path);
  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  EXPECT_EQ(lines_of(**file), *answer);
  EXPECT_EQ((*file)->metadata().at("made by"), "numpy\n\"\xc3\xa9\"");
}

// Stoker is at least as strict as Python: every corrupted file that stoker accepts also loads
// there.
TEST_F(SafetensorsPythonTest, LoadsFilesWithFlippedBitThatStokerAccepts) {
  const std::string content = *read_file(write_with_stoker(), 1 << 20);
  const size_t header_end = content.find("}}") + 8;
  for (size_t bit = 0; bit < header_end * 8; ++bit) {
    std::string flipped = content;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    write_candidate(flipped);
  }
  EXPECT_GT(accepted_, 0);
  RUN_OR_SKIP(answer, "accepts", accepted_dir_);
  EXPECT_EQ(*answer, "");
}

TEST_F(SafetensorsPythonTest, LoadsTruncatedOrExtendedFilesThatStokerAccepts) {
  const std::string header =
      R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"__metadata__":{"k":"v"}})";
  const std::string content = raw_tensors(header, "xyz");
  for (size_t bytes = 0; bytes <= content.size(); ++bytes)
    write_candidate(content.substr(0, bytes));
  for (size_t at = 0; at <= content.size(); ++at) {
    for (const char more : {' ', '\0', '0', '}', '"', ','}) {
      std::string grown = content;
      write_candidate(grown.insert(at, 1, more));
    }
    if (at < content.size()) write_candidate(std::string(content).erase(at, 1));
  }
  EXPECT_GT(accepted_, 0);
  RUN_OR_SKIP(answer, "accepts", accepted_dir_);
  EXPECT_EQ(*answer, "");
}

// Random combinations of header fragments with a matching length: most are not JSON, many are
// almost valid.
TEST_F(SafetensorsPythonTest, LoadsRandomHeadersThatStokerAccepts) {
  const std::vector<std::string> pieces = {"{",
                                           "}",
                                           "[",
                                           "]",
                                           ",",
                                           ":",
                                           "\"a\"",
                                           "\"b\"",
                                           "\"dtype\"",
                                           "\"shape\"",
                                           "\"data_offsets\"",
                                           "\"__metadata__\"",
                                           "\"U8\"",
                                           "\"F32\"",
                                           "\"F8_E4M3\"",
                                           "\"I64\"",
                                           "0",
                                           "4",
                                           "8",
                                           "12",
                                           "-0",
                                           "-1",
                                           "1e1",
                                           "4.0",
                                           "18446744073709551616",
                                           "null",
                                           "true",
                                           " ",
                                           "\n",
                                           "\"\\u0061\"",
                                           "\"\\ud800\"",
                                           "[0,4]",
                                           "[4]",
                                           "[]",
                                           "{}",
                                           "\"dtype\":\"U8\"",
                                           "\"shape\":[4]",
                                           "\"data_offsets\":[0,4]",
                                           "\"data_offsets\":[4,8]"};
  const std::string one = R"({"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
  const std::string two = R"({"dtype":"F32","shape":[1],"data_offsets":[4,8]})";
  std::mt19937_64 random(5);
  for (int round = 0; round < 20'000; ++round) {
    std::string header = R"({"a":)" + one + R"(,"b":)" + two + R"(,"__metadata__":{"k":"v"}})";
    for (uint64_t edits = 1 + random() % 2; edits > 0; --edits) {
      const size_t at = random() % header.size();
      const std::string& piece = pieces[random() % pieces.size()];
      // Replaces the same number of bytes, none, or up to the next separator.
      const size_t comma = header.find_first_of(",}]", at);
      const size_t out = random() % 3 == 0   ? 0
                         : random() % 2 == 0 ? std::min(piece.size(), header.size() - at)
                                             : std::min(comma, header.size()) - at;
      header.replace(at, out, piece);
    }
    write_candidate(raw_tensors(header, std::string(8, '\x3a')));
  }
  EXPECT_GT(accepted_, 100);
  EXPECT_GT(candidates_dir_ - accepted_, 10'000);
  RUN_OR_SKIP(answer, "accepts", accepted_dir_);
  EXPECT_EQ(*answer, "");
}

// Every file of a checkpoint, and what is exported from it.
TEST_F(SafetensorsPythonTest, LoadsEveryStokerFile) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 40; ++round) {
    std::vector<OwnedTensor> tensors = one_of_each_dtype();
    std::shuffle(tensors.begin(), tensors.end(), random);
    tensors.resize(random() % (tensors.size() + 1));
    for (OwnedTensor& tensor : tensors) {
      const std::vector<int64_t> shape(random() % 4, static_cast<int64_t>(random() % 3));
      tensor = make_tensor(tensor.spec.name + ".\xc3\xa9 \"", tensor.spec.dtype, shape);
    }
    ASSERT_TRUE(write_safetensors(default_file_system(), accepted_dir_, std::to_string(round),
                                  views_of(tensors), {{"format", "pt"}, {"a\n", "\"\t"}})
                    .ok());
  }
  const auto file = SafetensorsFile::open(write_with_stoker());
  ASSERT_TRUE(file.ok());
  const std::vector<ExportPart> parts = {{"model", file->get()}, {"optimizer", file->get()}};
  auto out = NewFile::create(default_file_system(), accepted_dir_ + "/exported");
  ASSERT_TRUE(out.ok() && export_safetensors(parts, {}, *out, {}).ok() && out->commit().ok());
  RUN_OR_SKIP(answer, "accepts", accepted_dir_);
  EXPECT_EQ(*answer, "");
}

}  // namespace
}  // namespace stoker::checkpoint
