// Handwritten torch.save files: what is read from them, and what is rejected.
#include "shared/checkpoint/torch_file.h"

#include <sys/mman.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "tests/shared/checkpoint/checkpoint_fixture.h"
#include "tests/support/numpy_files.h"
#include "tests/support/packed_bytes.h"
#include "tests/support/torch_files.h"

namespace stoker::checkpoint {
namespace {

using namespace test::torch_files;
using test::bytes_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kPath = "weights.pt";
const std::string kSixFloats = bytes_of<float>({0, 1, 2, 3, 4, 5});

UniqueFd in_memory(const std::string& content) {
  UniqueFd fd(::memfd_create("torch", MFD_CLOEXEC));
  EXPECT_TRUE(default_file_system().write(fd.get(), std::as_bytes(std::span(content)), kPath).ok());
  return fd;
}
Result<std::unique_ptr<TorchFile>> open(const std::string& content) {
  return TorchFile::open_fd(in_memory(content), kPath);
}
// One tensor `w` with a storage of six floats.
std::string one(const std::string& tensor) {
  return torch_file(pickled(dict({{text("w"), tensor}})), {{"0", kSixFloats}});
}
std::string floats(int64_t offset, const std::vector<int64_t>& shape,
                   const std::vector<int64_t>& strides) {
  return tensor("FloatStorage", "0", 6, offset, shape, strides);
}

template <typename Number>
std::vector<Number> numbers(const TorchFile& file, const std::string& name) {
  const TensorSpec* const spec = file.find(name);
  if (spec == nullptr) {
    ADD_FAILURE() << name << " is missing";
    return {};
  }
  std::vector<Number> values(static_cast<size_t>(spec->elements()));
  const Status status = file.read(name, std::as_writable_bytes(std::span(values)));
  EXPECT_TRUE(status.ok()) << status.to_string();
  return values;
}
std::vector<float> read_one(const std::string& tensor) {
  const auto file = open(one(tensor));
  EXPECT_TRUE(file.ok()) << file.status().to_string();
  return file.ok() ? numbers<float>(**file, "w") : std::vector<float>{};
}
void expect_rejected(const std::string& content, const std::string& why) {
  const auto file = open(content);
  ASSERT_FALSE(file.ok()) << why << ": accepted";
  EXPECT_EQ(file.status().code(), StatusCode::kCorrupt) << file.status().to_string();
  EXPECT_THAT(file.status().message(), HasSubstr(kPath));
  EXPECT_THAT(file.status().message(), HasSubstr(why));
  EXPECT_EQ(file.status().message().find('\n'), std::string::npos);
}
void expect_value_rejected(const std::string& value, const std::string& why) {
  expect_rejected(torch_file(pickled(value), {{"0", kSixFloats}}), why);
}

TEST(TorchFileTest, ReadsEveryDtype) {
  std::vector<std::pair<std::string, std::string>> items, storages;
  std::vector<OwnedTensor> due;
  for (const auto& [dtype, type] :
       {std::pair(DType::kF64, "DoubleStorage"), std::pair(DType::kF32, "FloatStorage"),
        std::pair(DType::kF16, "HalfStorage"), std::pair(DType::kBF16, "BFloat16Storage"),
        std::pair(DType::kI64, "LongStorage"), std::pair(DType::kI32, "IntStorage"),
        std::pair(DType::kI16, "ShortStorage"), std::pair(DType::kI8, "CharStorage"),
        std::pair(DType::kU8, "ByteStorage"), std::pair(DType::kBool, "BoolStorage"),
        std::pair(DType::kU16, "")}) {
    const std::string key = std::to_string(due.size());
    due.push_back(make_tensor(type, dtype, {2, 3}, static_cast<unsigned>(due.size()) + 1));
    const auto bytes = static_cast<int64_t>(due.back().bytes.size());
    items.emplace_back(text(type), *type == '\0'
                                       ? raw_tensor("uint16", key, bytes, 0, {2, 3}, {3, 1})
                                       : tensor(type, key, 6, 0, {2, 3}, {3, 1}));
    storages.emplace_back(
        key, std::string(reinterpret_cast<const char*>(due.back().bytes.data()), bytes));
  }
  const auto file = open(torch_file(pickled(dict(items)), storages));
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  ASSERT_EQ((*file)->tensors().size(), due.size());
  for (const OwnedTensor& tensor : due) {
    EXPECT_EQ(*(*file)->find(tensor.spec.name), tensor.spec);
    std::vector<std::byte> bytes(tensor.bytes.size());
    ASSERT_TRUE((*file)->read(tensor.spec.name, bytes).ok());
    EXPECT_EQ(bytes, tensor.bytes) << tensor.spec.name;
  }
}

TEST(TorchFileTest, GathersViewsIntoCOrder) {
  EXPECT_THAT(read_one(floats(0, {2, 3}, {3, 1})), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(read_one(floats(0, {3, 2}, {1, 3})), ElementsAre(0, 3, 1, 4, 2, 5));  // .t()
  EXPECT_THAT(read_one(floats(1, {3}, {2})), ElementsAre(1, 3, 5));                 // [1::2]
  EXPECT_THAT(read_one(floats(4, {2, 2}, {0, 1})), ElementsAre(4, 5, 4, 5));        // .expand()
  EXPECT_THAT(read_one(floats(2, {}, {})), ElementsAre(2));                         // a scalar
  EXPECT_THAT(read_one(floats(3, {1, 1, 3}, {99, 7, 1})), ElementsAre(3, 4, 5));
  EXPECT_THAT(read_one(floats(0, {0, 4}, {4, 1})), ElementsAre());
  EXPECT_THAT(read_one(floats(6, {0}, {1})), ElementsAre());
}

TEST(TorchFileTest, ReadsTensorsWithSharedStorage) {
  const auto file = open(torch_file(
      pickled(dict({{text("a"), floats(0, {6}, {1})}, {text("b"), floats(2, {2}, {1})}})),
      {{"0", kSixFloats}}));
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  EXPECT_THAT(numbers<float>(**file, "b"), ElementsAre(2, 3));
  EXPECT_THAT(numbers<float>(**file, "a"), ElementsAre(0, 1, 2, 3, 4, 5));
}

// Like a module's state_dict(), including its _metadata attribute, which is ignored.
TEST(TorchFileTest, ReadsParametersInOrderedDictWithAttributes) {
  const std::string weights = ordered_dict({{text("w"), parameter(floats(0, {2}, {1}))}}) +
                              dict({{text("_metadata"), ordered_dict({})}}) + "b";
  const auto file = open(torch_file(pickled(weights), {{"0", kSixFloats}}));
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  EXPECT_THAT(numbers<float>(**file, "w"), ElementsAre(0, 1));
}

TEST(TorchFileTest, FindsWeightsInNestedDict) {
  for (const char* nest : {"state_dict", "model_state_dict", "model"}) {
    const std::string value =
        dict({{text("epoch"), number(3)},
              {text("best"), floats(0, {}, {})},
              {text("args"), dict({{text("lr"), "G\x3f\xf0" + std::string(6, '\0')}})},
              {text(nest), dict({{text("w"), floats(0, {2}, {1})}, {text("n"), number(1)}})}});
    const auto file = open(torch_file(pickled(value), {{"0", kSixFloats}}));
    ASSERT_TRUE(file.ok()) << file.status().to_string();
    EXPECT_EQ((*file)->tensors().size(), 1U) << nest;
    EXPECT_THAT(numbers<float>(**file, "w"), ElementsAre(0, 1));
    EXPECT_THAT((*file)->non_tensor_keys(), ElementsAre("n"));
  }
}

TEST(TorchFileTest, ReportsKeysWhenNoneContainsTensors) {
  expect_value_rejected(dict({{text("epoch"), number(3)}, {text("lr"), number(1)}}),
                        "its keys: epoch, lr");
  expect_value_rejected(floats(0, {2}, {1}), "no dict of tensors");
  expect_value_rejected("]", "no dict of tensors");
}

TEST(TorchFileTest, RejectsUnknownGlobalAndReportsItsName) {
  for (const auto& [module, word] :
       {std::pair("os", "system"), std::pair("builtins", "eval"), std::pair("__builtin__", "exec"),
        std::pair("posix", "system"), std::pair("argparse", "Namespace"),
        std::pair("numpy.core.multiarray", "scalar"),
        std::pair("torch.nn.modules.linear", "Linear"), std::pair("torch", "load"),
        std::pair("torch", "ComplexFloatStorage"), std::pair("torch", "QInt8Storage"),
        std::pair("torch", ""), std::pair("", "")}) {
    const std::string full = std::string(module) + "." + word;
    expect_value_rejected(call(name(module, word), {text("rm -rf /")}), "contains " + full);
    expect_value_rejected(dict({{text("w"), name(module, word)}}), "contains " + full);
  }
  expect_value_rejected("cos\nsystem", "unterminated name");
  expect_value_rejected("c" + std::string(1000, 'x') + "\ny\n", "unterminated name");
}

TEST(TorchFileTest, ReplacesControlCharactersInMessages) {
  const std::string evil = "\x1b[2J\x07";
  expect_value_rejected(name("os" + evil, "x"), "contains os?[2J?.x");
  expect_value_rejected(dict({{text("w" + evil), number(1)}}), "its keys: w?[2J?");
  expect_value_rejected(tensor("FloatStorage", "k" + evil, 6, 0, {6}, {1}), "no storage 'k?[2J?'");
  expect_value_rejected(dict({{text("w\n"), floats(0, {6}, {1})}}), "control character");
}

// A global alone creates nothing, and a called one must be a supported function.
TEST(TorchFileTest, RejectsInvalidReduceCalls) {
  expect_value_rejected(call(name("torch", "FloatStorage"), {number(1)}), "is not a function");
  expect_value_rejected(call(name("torch", "Size"), {number(1)}), "invalid arguments");
  expect_value_rejected(call(text("f"), {}), "non-function");
  expect_value_rejected(name("collections", "OrderedDict") + number(1) + "R", "non-function");
  expect_value_rejected(parameter(number(1)), "invalid arguments");
  expect_value_rejected(call(name("torch._utils", "_rebuild_tensor_v2"), {number(1)}), "too few");
  expect_value_rejected(number(1) + dict({}) + "b", "expected a dict");
  expect_value_rejected(ordered_dict({}) + number(1) + "b", "attributes");
}

TEST(TorchFileTest, RejectsTensorsBeyondTheirStorage) {
  const int64_t huge = INT64_MAX;
  for (const auto& value : {floats(0, {7}, {1}), floats(1, {6}, {1}), floats(6, {1}, {1}),
                            floats(0, {2, 3}, {4, 1}), floats(0, {2}, {6}), floats(huge, {1}, {1}),
                            floats(1, {2}, {huge}), floats(0, {2, 2}, {huge / 2, huge / 2})})
    expect_value_rejected(dict({{text("w"), value}}), "exceeds");
  expect_value_rejected(dict({{text("w"), floats(0, {huge, huge}, {0, 0})}}), "overflows");
  expect_value_rejected(dict({{text("w"), floats(0, {huge}, {0})}}), "overflows");
  expect_value_rejected(raw_tensor("uint16", "0", 3, 0, {2}, {1}), "exceeds the 1 elements");
}

TEST(TorchFileTest, RejectsInvalidOffsetsShapesAndStrides) {
  expect_value_rejected(floats(-1, {1}, {1}), "invalid offset");
  expect_value_rejected(floats(0, {-1}, {1}), "shape is not a count");
  expect_value_rejected(floats(0, {1}, {-1}), "strides is not a count");
  expect_value_rejected(floats(0, {1, 1}, {1}), "2 extents and 1 strides");
  expect_value_rejected(floats(0, std::vector<int64_t>(65, 1), std::vector<int64_t>(65, 1)),
                        "too many dimensions");
  expect_value_rejected(storage("FloatStorage", "0", -1), "invalid storage");
  expect_value_rejected(storage("FloatStorage", "0", INT64_MAX / 2), "63 bits");
  expect_value_rejected(storage("Size", "0", 6), "of type torch.Size");
  expect_value_rejected(tuple({text("module"), number(1)}) + "Q", "invalid storage");
  expect_value_rejected(raw_tensor("int5", "0", 6, 0, {1}, {1}), "torch.int5");
  expect_value_rejected(raw_tensor("Size", "0", 6, 0, {1}, {1}), "without a dtype");
}

TEST(TorchFileTest, RejectsMissingOrTooShortStorages) {
  const std::string seven = dict({{text("w"), tensor("FloatStorage", "0", 7, 0, {6}, {1})}});
  expect_value_rejected(seven, "has 24 bytes; expected 28");
  const std::string other = dict({{text("w"), tensor("FloatStorage", "../0", 6, 0, {6}, {1})}});
  expect_value_rejected(other, "no storage '../0'");
}

TEST(TorchFileTest, RejectsUnknownInstructions) {
  constexpr std::string_view kKnown = ".(0NJKMGXUtaesu]})hjqrcQRb";
  for (int op = 0; op < 256; ++op) {
    const bool known = kKnown.find(static_cast<char>(op)) != std::string_view::npos ||
                       (op >= 0x85 && op <= 0x8a) || op == 0x80;
    if (known) continue;
    expect_value_rejected(std::string(1, static_cast<char>(op)), "instruction 0x");
  }
  expect_value_rejected("\x95", "instruction 0x95");  // protocol 4
}

TEST(TorchFileTest, RejectsStackErrors) {
  for (const char* value :
       {"",      "R",    "(tR", "a",      "]a",  "t",    "u",   "}u",   "}(Nu", "s",
        "}NNNs", "(NN",  "NN",  "0",      "N0",  "\x85", "b",   "Q",    "NQ",   "(0",
        "q\1",   "(q\1", "N(u", "}(NN(u", "h\7", "]e",   "N(e", "\x86", "N\x86"})
    expect_value_rejected(value, "");
  expect_value_rejected("N.N", "trailing");
  expect_value_rejected("\x80\x09N", "protocol 9");
}

TEST(TorchFileTest, RejectsLengthsBeyondPickle) {
  for (const std::string& value : {std::string("X\xff\xff\xff\xff"), std::string("U\xff"),
                                   std::string("\x8a\xff"), std::string("X\x10\0\0\0abc", 8),
                                   std::string("J\1\2"), std::string("G\1"), std::string("j\1")})
    expect_value_rejected(value, "truncated opcode");
}

// Memoized values can be reused: a dict that contains itself, and texts that double in each step.
TEST(TorchFileTest, ReadsSelfReferencingValuesWithBoundedMemory) {
  const std::string self = "}q" + std::string(1, '\0') + "(" + text("w") + floats(0, {6}, {1}) +
                           text("me") + "h" + std::string(1, '\0') + "u";
  const auto file = open(torch_file(pickled(self), {{"0", kSixFloats}}));
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  EXPECT_THAT((*file)->non_tensor_keys(), ElementsAre("me"));
  std::string doubling = "]q" + std::string(1, '\0');
  for (char i = 0; i < 100; ++i)
    doubling += std::string("h") + i + "h" + i + "\x86q" + static_cast<char>(i + 1);
  for (char i = 0; i < 100; ++i) doubling += "0";
  expect_value_rejected(doubling, "");
}

// A few bytes that create a tensor each time, or refer to a storage with a long key, must not
// exhaust memory.
TEST(TorchFileTest, RejectsRepetitionBeyondMemoryLimit) {
  const auto memo_get = [](char index) { return std::string("h") + index; };
  const auto keep = [](char index) { return std::string("q") + index + "0"; };
  const std::string extents = tuple({number(1)});
  std::string tensors = name("torch._utils", "_rebuild_tensor_v2") + keep(1) +
                        tuple({storage("FloatStorage", "0", 6), number(0), extents, extents}) +
                        keep(2);
  for (int i = 0; i < 200'001; ++i) tensors += memo_get(1) + memo_get(2) + "R0";
  expect_value_rejected(tensors + "}", "more than 200000 tensors");
  std::string values;
  for (int i = 0; i < 2'000'001; ++i) values += "}0";
  expect_value_rejected(values, "more than 2000000 values");
  expect_value_rejected(storage("FloatStorage", std::string(65, '0'), 6),
                        "invalid storage reference");
}

TEST(TorchFileTest, LimitsWhatPickleRepeats) {
  const auto repeated = [](const std::string& unit, size_t count) {
    std::string text;
    for (size_t i = 0; i < count; ++i) text += unit;
    return text;
  };
  const std::string zero(1, '\0');
  expect_value_rejected(std::string(1001, '('), "more than 1000 nested values");
  expect_value_rejected("]q" + zero + repeated("h" + zero + "0", 4'000'001),
                        "more than 4000000 references to values");
  std::string memo = "N";
  for (size_t i = 0; i < 2'000'001; ++i) memo += "r" + test::little_endian(i, 4);
  expect_value_rejected(memo, "more than 2000000 values in the memo");
  const std::string id =
      tuple({text("storage"), name("torch", "FloatStorage"), text("0"), text("cpu"), number(6)});
  expect_value_rejected(id + "q" + zero + "0" + repeated("h" + zero + "Q0", 200'001),
                        "more than 200000 storages");
  const std::string extents = tuple(std::vector<std::string>(64, number(1)));
  const std::string arguments =
      tuple({storage("FloatStorage", "0", 6), number(0), extents, extents});
  expect_value_rejected(name("torch._utils", "_rebuild_tensor") + "q" + zero + "0" + arguments +
                            "q\0010" + repeated("h" + zero + "h\001R0", 15'626),
                        "tensors with more than 1000000 dimensions in total");
}

// Each entry is four bytes, and its name in messages a hundred.
TEST(TorchFileTest, ListsLimitedNumberOfOtherKeys) {
  const std::string zero(1, '\0');
  std::string value = "}(" + text("w") + floats(0, {6}, {1}) + text("k") + "q" + zero + "N";
  for (int i = 0; i < 20'000; ++i) value += "h" + zero + "N";
  const auto file = open(torch_file(pickled(value + "u"), {{"0", kSixFloats}}));
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  EXPECT_EQ((*file)->non_tensor_keys().size(), 10'000u);
}

TEST(TorchFileTest, RejectsFormatBeforePyTorch16WithHint) {
  const std::string legacy = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";
  expect_rejected(legacy, "torch.save(torch.load(");
  EXPECT_THAT(open_tensor_file_fd(in_memory(legacy), kPath).status().message(),
              HasSubstr("before 1.6"));
}

TEST(TorchFileTest, RejectsArchivesNotWrittenByTorchSave) {
  const std::string good = pickled(dict({{text("w"), floats(0, {6}, {1})}}));
  expect_rejected(test::zip({{"x.npy", "x"}}, false), "no data.pkl");
  expect_rejected(test::zip({{"data.pkl", good}}, false), "no data.pkl");
  expect_rejected(test::zip({{"a/b/data.pkl", good}}, false), "no data.pkl");
  expect_rejected(test::zip({{"a/data.pkl", good}, {"b/data.pkl", good}}, false), "two files");
  expect_rejected(test::zip({{"a/data.pkl", good}, {"a/x", ""}, {"a/x", ""}}, false),
                  "two members");
  expect_rejected(test::zip({{"a/data.pkl", good}, {"a/data/0", kSixFloats}}, true),
                  "members are compressed");
  expect_rejected(torch_file(good, {{"0", kSixFloats}}, "big"), "'big'");
  expect_rejected("PK\3\4 and nothing else", "zip archive");
  expect_rejected("", "zip archive");
}

// torch.serialization.set_crc32_options(False): all checksums are 0.
TEST(TorchFileTest, ReadsArchiveWithoutChecksums) {
  std::string file = one(floats(0, {6}, {1}));
  for (const std::string magic : {"PK\1\2", "PK\3\4"}) {
    for (size_t at = file.find(magic); at != std::string::npos; at = file.find(magic, at + 4))
      file.replace(at + (magic[2] == 1 ? 16 : 14), 4, std::string(4, '\0'));
  }
  const auto opened = open(file);
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  EXPECT_THAT(numbers<float>(**opened, "w"), ElementsAre(0, 1, 2, 3, 4, 5));
}

// Opens the file and reads every tensor of moderate size.
Status use(const std::string& content) {
  STOKER_ASSIGN_OR_RETURN(const auto file, open(content));
  for (const TensorSpec& spec : file->tensors()) {
    if (spec.elements() > 1000) continue;
    std::vector<std::byte> bytes(spec.bytes());
    STOKER_RETURN_IF_ERROR(file->read(spec.name, bytes));
  }
  return {};
}

class CorruptTorchFileTest : public ::testing::Test {
 protected:
  const std::string data_ = bytes_of<float>({0.25, 1, -2, 3, 4, 5});
  const std::string content_ = torch_file(
      pickled(dict({{text("w"), parameter(tensor("FloatStorage", "0", 6, 0, {3, 2}, {1, 3}))},
                    {text("n"), raw_tensor("uint16", "0", 24, 1, {4}, {2})}})),
      {{"0", data_}});
};

TEST_F(CorruptTorchFileTest, RejectsTruncationAtAnyByte) {
  ASSERT_TRUE(use(content_).ok()) << use(content_).to_string();
  for (size_t bytes = 0; bytes < content_.size(); ++bytes)
    EXPECT_EQ(use(content_.substr(0, bytes)).code(), StatusCode::kCorrupt) << bytes;
}

// A flipped bit in checksummed data is always detected; elsewhere it is detected or harmless.
TEST_F(CorruptTorchFileTest, DetectsFlippedBitsInChecksummedBytes) {
  const size_t pickle = content_.find("\x80\x02"), data = content_.find(data_);
  const size_t pickle_end = content_.find("PK", pickle);
  for (size_t bit = 0; bit < content_.size() * 8; ++bit) {
    std::string flipped = content_;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << bit % 8));
    const Status status = use(flipped);
    const size_t at = bit / 8;
    const bool is_covered =
        (at >= pickle && at < pickle_end) || (at >= data && at < data + data_.size());
    if (is_covered) {
      EXPECT_EQ(status.code(), StatusCode::kCorrupt) << "bit " << bit;
    } else if (!status.ok()) {
      EXPECT_EQ(status.code(), StatusCode::kCorrupt) << "bit " << bit << status.to_string();
    }
  }
}

TEST(TensorFileTest, DetectsFormatByFirstBytes) {
  const auto torch = open_tensor_file_fd(in_memory(one(floats(0, {2}, {1}))), kPath);
  ASSERT_TRUE(torch.ok()) << torch.status().to_string();
  EXPECT_EQ(to_string((*torch)->tensors().front()), "w F32 [2]");
  // Headers whose length starts with the magic bytes of the other formats.
  for (const uint64_t length : {uint64_t{0x0280}, uint64_t{0x2e80}}) {
    const std::string header = R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
    const auto file = open_tensor_file_fd(
        in_memory(raw_tensors(header + std::string(length - header.size(), ' '), "x")), kPath);
    ASSERT_TRUE(file.ok()) << file.status().to_string();
    EXPECT_EQ(to_string((*file)->tensors().front()), "t U8 [1]");
  }
  for (const std::string content :
       {"", "PK", "garbage that is neither", "\x89PNG\r\n\x1a\n12345"}) {
    const auto file = open_tensor_file_fd(in_memory(content), kPath);
    EXPECT_EQ(file.status().code(), StatusCode::kCorrupt);
    EXPECT_THAT(file.status().message(), HasSubstr("is neither"));
  }
}

}  // namespace
}  // namespace stoker::checkpoint
