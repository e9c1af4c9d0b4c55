#include <sys/mman.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include <gtest/gtest.h>

#include "shared/base/sha256.h"
#include "shared/checkpoint/safetensors.h"
#include "tests/shared/checkpoint/raw_tensors.h"
#include "tests/support/temporary_directory.h"

namespace stoker::checkpoint {
namespace {

class SafetensorsPython : public ::testing::Test {
 protected:
  // What the script prints; nullopt where Python or its packages are missing.
  std::optional<std::string> maybe_run(const std::string& verb, const std::string& path) {
    const char* chosen = std::getenv("STOKER_PYTHON");
    const std::string python = chosen != nullptr && *chosen != '\0' ? chosen : "python3";
    const std::string errors = scratch_ / "errors";
    const std::string command = "'" + python + "' -B '" STOKER_SAFETENSORS_PY "' " + verb + " '" +
                                path + "' 2>'" + errors + "'";
    std::FILE* pipe = ::popen(command.c_str(), "r");
    if (pipe == nullptr) return std::nullopt;
    std::string answer;
    char part[4096];
    for (size_t got = 0; (got = std::fread(part, 1, sizeof part, pipe)) > 0;)
      answer.append(part, got);
    const int status = ::pclose(pipe);
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (code == 77 || code == 127) return std::nullopt;
    EXPECT_EQ(code, 0) << *read_file(errors, 1 << 20);
    return answer;
  }
  // The same lines as the script's.
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
  std::string write_ours() {
    const auto written = write_safetensors(real_files(), scratch_.path(), "ours",
                                           views_of(one_of_each_dtype()), {{"format", "pt"}});
    EXPECT_TRUE(written.ok()) << written.status().to_string();
    return scratch_ / "ours";
  }

  test::TemporaryDirectory scratch_;
};

#define RUN_OR_SKIP(answer, verb, path)                                            \
  const auto answer = maybe_run((verb), (path));                                   \
  if (!answer)                                                                     \
  GTEST_SKIP() << "set STOKER_PYTHON to a Python that can import safetensors and " \
                  "numpy"

TEST_F(SafetensorsPython, ReadsOurs) {
  const std::string path = write_ours();
  RUN_OR_SKIP(answer, "read", path);
  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(*answer, lines_of(**file));
}

TEST_F(SafetensorsPython, PyTorchReadsOurs) {
  const std::string path = write_ours();
  RUN_OR_SKIP(answer, "torch", path);
}

TEST_F(SafetensorsPython, WeReadIts) {
  const std::string path = scratch_ / "theirs";
  RUN_OR_SKIP(answer, "write", path);
  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  EXPECT_EQ(lines_of(**file), *answer);
  EXPECT_EQ((*file)->metadata().at("made by"), "numpy\n\"\xc3\xa9\"");
}

// Whatever it refuses, we refuse: of all files with one flipped bit in the header, the ones that we
// accept load there too.
TEST_F(SafetensorsPython, AcceptsEveryDamagedFileThatWeAccept) {
  const std::string whole = *read_file(write_ours(), 1 << 20);
  const std::string kept = scratch_ / "kept";
  std::filesystem::create_directory(kept);
  const size_t header_end = whole.find("}}") + 8;
  int accepted = 0;
  for (size_t bit = 0; bit < header_end * 8; ++bit) {
    std::string flipped = whole;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    UniqueFd fd(::memfd_create("flipped", MFD_CLOEXEC));
    ASSERT_TRUE(real_files().write(fd.get(), std::as_bytes(std::span(flipped)), "flipped").ok());
    if (!SafetensorsFile::adopt(std::move(fd), "flipped").ok()) continue;
    test::write_whole(kept + "/" + std::to_string(bit), flipped);
    ++accepted;
  }
  EXPECT_GT(accepted, 0);
  RUN_OR_SKIP(answer, "accepts", kept);
  EXPECT_EQ(*answer, "");
}

}  // namespace
}  // namespace stoker::checkpoint
