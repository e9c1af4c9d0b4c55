// Invalid files: each is rejected with kCorrupt and the path before any tensor is read.
#include <sys/mman.h>
#include <unistd.h>

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/checkpoint/safetensors.h"
#include "tests/shared/checkpoint/checkpoint_fixture.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_seed.h"

namespace stoker::checkpoint {
namespace {

using ::testing::HasSubstr;

class SafetensorsValidationTest : public ::testing::Test {
 protected:
  // In memory, because there are tens of thousands of files.
  Result<std::unique_ptr<SafetensorsFile>> open(const std::string& content, uint64_t bytes = 0) {
    UniqueFd fd(::memfd_create("bad.safetensors", MFD_CLOEXEC));
    const auto all = std::as_bytes(std::span(content));
    STOKER_RETURN_IF_ERROR(default_file_system().write(fd.get(), all, path_));
    if (bytes > 0 && ::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0)
      return Status::from_errno(errno, path_);
    return SafetensorsFile::open_fd(std::move(fd), path_);
  }
  void expect_rejected(const std::string& content, const std::string& why) {
    const auto opened = open(content);
    ASSERT_FALSE(opened.ok()) << why << ": accepted";
    EXPECT_EQ(opened.status().code(), StatusCode::kCorrupt) << opened.status().to_string();
    EXPECT_THAT(opened.status().message(), HasSubstr(path_));
    EXPECT_THAT(opened.status().message(), HasSubstr(why));
    EXPECT_EQ(opened.status().message().find('\n'), std::string::npos);
  }
  void expect_header_rejected(const std::string& header, const std::string& why,
                              size_t data_bytes = 8) {
    expect_rejected(raw_tensors(header, std::string(data_bytes, 'x')), why);
  }
  void expect_accepted(const std::string& header, size_t data_bytes = 8) {
    const auto opened = open(raw_tensors(header, std::string(data_bytes, 'x')));
    EXPECT_TRUE(opened.ok()) << header << ": " << opened.status().to_string();
  }
  // A header with one tensor `t` and these three values, unchanged.
  static std::string one(const std::string& dtype, const std::string& shape,
                         const std::string& offsets) {
    return R"({"t":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets +
           "}}";
  }
  static std::string entry(const std::string& name, uint64_t begin, uint64_t end) {
    return "\"" + name + R"(":{"dtype":"U8","shape":[)" + std::to_string(end - begin) +
           R"(],"data_offsets":[)" + std::to_string(begin) + "," + std::to_string(end) + "]}";
  }

  test::TemporaryDirectory scratch_;
  const std::string path_ = "run/bad.safetensors";
};

TEST_F(SafetensorsValidationTest, AcceptsValidBaseFiles) {
  expect_accepted(one("\"U8\"", "[8]", "[0,8]"));
  expect_accepted(one("\"F64\"", "[]", "[0,8]"));
  expect_accepted("{" + entry("a", 0, 3) + "," + entry("b", 3, 8) + "}");
  expect_accepted("{" + entry("b", 3, 8) + "," + entry("a", 0, 3) + "}");  // any order is valid
  expect_accepted("{}", 0);
}

TEST_F(SafetensorsValidationTest, RejectsFileWithoutCompleteLengthField) {
  for (size_t bytes = 0; bytes < 8; ++bytes) expect_rejected(std::string(bytes, '\1'), "too few");
}

TEST_F(SafetensorsValidationTest, RejectsHeaderLengthBeyondFileOrLimitWithoutAllocation) {
  for (const uint64_t length :
       {uint64_t{3}, uint64_t{100}, kMaxHeaderBytes, kMaxHeaderBytes + 1, uint64_t{1} << 40,
        uint64_t{1} << 63, ~uint64_t{0}, ~uint64_t{0} - 7})
    expect_rejected(raw_tensors_of_length(length, "{}"), "header of");
}

TEST_F(SafetensorsValidationTest, RejectsOversizedHeaderThatIsComplete) {
  const auto opened = open(raw_tensors_of_length(kMaxHeaderBytes + 1, "{"), kMaxHeaderBytes + 100);
  ASSERT_EQ(opened.status().code(), StatusCode::kCorrupt);
  EXPECT_THAT(opened.status().message(), HasSubstr("limit"));
}

TEST_F(SafetensorsValidationTest, RejectsNonObjectHeader) {
  for (const char* header :
       {"", " {}", "[]", "null", "1", "\"\"", "{", "{]", "{}}", "{} x", "{}{}", "{,}", "{\"a\"}",
        "{\"a\":}", "{'a':1}", "{a:1}", "\xef\xbb\xbf{}", "{/**/}", "{\"a\":{},}"})
    expect_header_rejected(header, "header", 0);
  expect_header_rejected(std::string("{}\0", 3), "header", 0);
}

TEST_F(SafetensorsValidationTest, RejectsDeepNesting) {
  expect_header_rejected("{\"t\":" + std::string(100'000, '['), "array");
  std::string objects = "{";
  for (int depth = 0; depth < 100'000; ++depth) objects += "\"a\":{";
  expect_header_rejected(objects, "");
}

// A few bytes that take much more memory each.
TEST_F(SafetensorsValidationTest, LimitsDimensions) {
  const auto shape = [](size_t dimensions) {
    std::string text = "[8";
    for (size_t i = 1; i < dimensions; ++i) text += ",1";
    return text + "]";
  };
  expect_accepted(one("\"U8\"", shape(64), "[0,8]"));
  expect_header_rejected(one("\"U8\"", shape(65), "[0,8]"), "t: more than 64 dimensions");
}

TEST_F(SafetensorsValidationTest, LimitsTensors) {
  std::string header = "{" + entry("a", 0, 8);
  for (int i = 1; i < 200'000; ++i) header += "," + entry("t" + std::to_string(i), 8, 8);
  expect_accepted(header + "}");
  expect_header_rejected(header + "," + entry("b", 8, 8) + "}",
                         "more than 200000 tensors; save the model in several files");
}

TEST_F(SafetensorsValidationTest, LimitsMetadata) {
  std::string header = R"({"__metadata__":{"a":"")";
  for (int i = 1; i < 10'000; ++i) header += ",\"k" + std::to_string(i) + "\":\"\"";
  expect_accepted(header + "}}", 0);
  expect_header_rejected(header + R"(,"b":""}})", "more than 10000 entries of __metadata__", 0);
}

// The header is read in parts of 64 KiB: each byte is the last of a part once.
TEST_F(SafetensorsValidationTest, ReadsHeaderInParts) {
  const std::string start = R"({"__metadata__":{"k":")";
  const std::string rest =
      R"("},"a\u00e9":{"dtype":"U8","shape":[1,300],"data_offsets":[0,300]}}   )";
  const std::string invalid = R"("},"t":{"dtype":"U8","shape":[0,-0],"data_offsets":[0,0]}})";
  for (size_t before = 0; before <= rest.size(); ++before) {
    const std::string text(65536 - start.size() - before, 'm');
    const auto file = open(raw_tensors(start + text + rest, std::string(300, 'x')));
    ASSERT_TRUE(file.ok()) << before << ": " << file.status().to_string();
    EXPECT_EQ((*file)->metadata().at("k"), text);
    ASSERT_NE((*file)->find("a\u00e9"), nullptr);
    EXPECT_EQ((*file)->find("a\u00e9")->shape, (std::vector<int64_t>{1, 300}));
    expect_header_rejected(start + text + invalid, "negative number", 0);
    expect_header_rejected(start + text + rest + "}", "trailing bytes", 300);
  }
}

TEST_F(SafetensorsValidationTest, RejectsNonTensorEntry) {
  for (const char* value : {"1", "null", "true", "\"x\"", "[]", "{}", "-1.5"})
    expect_header_rejected(R"({"t":)" + std::string(value) + "}", "", 0);
  expect_header_rejected(R"({"t":{"dtype":"U8","shape":[8]}})", "needs");
  expect_header_rejected(R"({"t":{"dtype":"U8","data_offsets":[0,8]}})", "needs");
  expect_header_rejected(R"({"t":{"shape":[8],"data_offsets":[0,8]}})", "needs");
  expect_header_rejected(R"({"t":{"dtype":"U8","shape":[8],"data_offsets":[0,8],"more":1}})",
                         "unknown key");
}

TEST_F(SafetensorsValidationTest, RejectsUnknownDtypes) {
  for (const char* dtype : {"\"\"", "\"f32\"", "\"F33\"", "\"U8 \"", "\"F8_E4M3\"", "\"C64\"",
                            "\"F32\\u0000\"", "7", "null", "[]", "{}", "true"})
    expect_header_rejected(one(dtype, "[8]", "[0,8]"), "");
}

TEST_F(SafetensorsValidationTest, RejectsInvalidShapes) {
  for (const char* shape : {"[-8]",
                            "[-2,-4]",
                            "[-0]",
                            "[8.0]",
                            "[8e0]",
                            "[8.5]",
                            "[1e400]",
                            "[null]",
                            "[\"8\"]",
                            "[[8]]",
                            "[{}]",
                            "[true]",
                            "8",
                            "null",
                            "\"8\"",
                            "{}",
                            "[7]",
                            "[9]",
                            "[0]",
                            "[8,0]",
                            "[0,8]",
                            "[9223372036854775808]",
                            "[18446744073709551616]",
                            "[2,4,]",
                            "[08]"})
    expect_header_rejected(one("\"U8\"", shape, "[0,8]"), "");
}

TEST_F(SafetensorsValidationTest, RejectsShapesThatOverflow) {
  // Each overflows 64 bits to 8 bytes or to 0.
  expect_header_rejected(one("\"U8\"", "[4611686018427387905,8]", "[0,8]"), "overflow");
  expect_header_rejected(one("\"F64\"", "[2305843009213693953]", "[0,8]"), "overflow");
  expect_header_rejected(one("\"U8\"", "[4294967296,4294967296]", "[0,0]"), "overflow", 0);
  expect_header_rejected(one("\"F32\"", "[4611686018427387904]", "[0,0]"), "overflow", 0);
  expect_header_rejected(one("\"U8\"", "[4294967296,4294967296,0]", "[0,0]"), "overflow", 0);
  // Fits into an unsigned 64-bit integer, but not into a signed extent.
  expect_header_rejected(one("\"U8\"", "[4294967296,2147483648,0]", "[0,0]"), "overflow", 0);
  expect_accepted(one("\"U8\"", "[0,4294967296,4294967296]", "[0,0]"), 0);
}

TEST_F(SafetensorsValidationTest, RejectsInvalidOffsets) {
  for (const char* offsets : {"[0,7]",
                              "[0,9]",
                              "[1,8]",
                              "[1,9]",
                              "[8,0]",
                              "[8,16]",
                              "[0]",
                              "[0,8,8]",
                              "[]",
                              "[0,-8]",
                              "[-8,0]",
                              "[-0,8]",
                              "[0,8.0]",
                              "[0,\"8\"]",
                              "null",
                              "8",
                              "[0,18446744073709551615]",
                              "[18446744073709551608,18446744073709551616]",
                              "[18446744073709551608,0]",
                              "[[0,8]]"})
    expect_header_rejected(one("\"U8\"", "[8]", offsets), "");
}

TEST_F(SafetensorsValidationTest, RejectsOverlapsAndHoles) {
  expect_header_rejected("{" + entry("a", 0, 5) + "," + entry("b", 3, 8) + "}", "gap or overlap");
  expect_header_rejected("{" + entry("a", 0, 3) + "," + entry("b", 4, 8) + "}", "gap or overlap");
  expect_header_rejected("{" + entry("a", 0, 8) + "," + entry("b", 0, 8) + "}", "gap or overlap");
  expect_header_rejected("{" + entry("a", 1, 8) + "}", "gap or overlap");
  expect_header_rejected("{" + entry("a", 0, 8) + "," + entry("b", 4, 4) + "}", "gap or overlap");
  expect_accepted("{" + entry("a", 0, 8) + "," + entry("b", 8, 8) + "," + entry("c", 0, 0) + "}");
}

TEST_F(SafetensorsValidationTest, RejectsBytesOutsideTensors) {
  expect_header_rejected("{" + entry("a", 0, 8) + "}", "the data at 9", 9);
  expect_header_rejected("{" + entry("a", 0, 8) + "}", "the data at 7", 7);
  expect_header_rejected("{}", "the data at 1", 1);
}

TEST_F(SafetensorsValidationTest, RejectsDuplicateKeys) {
  expect_header_rejected("{" + entry("a", 0, 4) + "," + entry("a", 4, 8) + "}", "duplicate");
  expect_header_rejected("{" + entry("a", 0, 4) + "," + entry("\\u0061", 4, 8) + "}", "duplicate");
  expect_header_rejected(R"({"t":{"dtype":"U8","dtype":"U8","shape":[8],"data_offsets":[0,8]}})",
                         "duplicate");
  expect_header_rejected(R"({"t":{"dtype":"U8","shape":[8],"shape":[8],"data_offsets":[0,8]}})",
                         "duplicate");
  expect_header_rejected(R"({"__metadata__":{},"__metadata__":{}})", "duplicate", 0);
  expect_header_rejected(R"({"__metadata__":{"a":"1","a":"1"}})", "duplicate", 0);
}

TEST_F(SafetensorsValidationTest, RejectsNonStringMetadata) {
  for (const char* value : {"1", "null", "[]", "\"x\"", R"({"a":1})", R"({"a":null})",
                            R"({"a":{}})", R"({"a":[]})", R"({"a":true})"})
    expect_header_rejected(R"({"__metadata__":)" + std::string(value) + "}", "", 0);
}

TEST_F(SafetensorsValidationTest, RejectsInvalidTensorNames) {
  expect_header_rejected("{" + entry(std::string(513, 'n'), 0, 8) + "}", "limit");
  expect_accepted("{" + entry(std::string(512, 'n'), 0, 8) + "}");
  expect_header_rejected("{" + entry("a\\n", 0, 8) + "}", "control character");
  expect_header_rejected("{" + entry("a\\u0000", 0, 8) + "}", "control character");
  expect_header_rejected("{" + entry("a\\u001b[2J", 0, 8) + "}", "control character");
  expect_header_rejected("{" + entry("a\x7f", 0, 8) + "}", "control character");
  expect_header_rejected("{" + entry("a\\u0085", 0, 8) + "}", "control character");
  expect_header_rejected("{" + entry("a\xff", 0, 8) + "}", "");
  expect_header_rejected("{" + entry("a\\ud800", 0, 8) + "}", "");
}

TEST_F(SafetensorsValidationTest, RejectsTruncationAtAnyByte) {
  ASSERT_TRUE(write_safetensors(default_file_system(), scratch_.path(), "file",
                                views_of(one_of_each_dtype()), {{"format", "pt"}})
                  .ok());
  const std::string content = *read_file(scratch_ / "file", 1 << 20);
  for (size_t bytes = 0; bytes < content.size(); ++bytes) {
    SCOPED_TRACE(bytes);
    expect_rejected(content.substr(0, bytes), "");
  }
  expect_rejected(content + '\0', "");
}

// A file that is accepted after a bit flip must still be valid: its tensors fill the file and can
// be read.
TEST_F(SafetensorsValidationTest, NeverCrashesNorReadsBeyondFileOnFlippedBits) {
  ASSERT_TRUE(write_safetensors(default_file_system(), scratch_.path(), "file",
                                views_of(one_of_each_dtype()), {{"format", "pt"}})
                  .ok());
  const std::string content = *read_file(scratch_ / "file", 1 << 20);
  const size_t header_end = content.find("}}") + 2;
  int accepted = 0;
  for (size_t bit = 0; bit < header_end * 8; ++bit) {
    std::string flipped = content;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    const auto opened = open(flipped);
    if (!opened.ok()) {
      ASSERT_EQ(opened.status().code(), StatusCode::kCorrupt) << "bit " << bit;
      continue;
    }
    ++accepted;
    for (const TensorSpec& spec : (*opened)->tensors()) {
      ASSERT_LE(spec.bytes(), content.size()) << "bit " << bit;
      std::vector<std::byte> bytes(spec.bytes());
      ASSERT_TRUE((*opened)->read(spec.name, bytes).ok()) << "bit " << bit;
    }
  }
  EXPECT_GT(accepted, 0);  // flips in letters of names
}

}  // namespace
}  // namespace stoker::checkpoint
