// Text with a tokenizer: encoded once, in parts that are reused after an interruption and shared by
// runs.
#include "shared/data/cache/token_cache.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shared/data/files/index.h"
#include "shared/data/files/scan.h"
#include "tests/shared/data/fake_sandbox.h"
#include "tests/shared/data/folder_fixture.h"
#include "tests/support/tokenizer_files.h"

namespace stoker::data::cache {
namespace {

using ::testing::ElementsAre;
using testing::FakeSandbox;
using ::testing::HasSubstr;
using testing::read_sample;

constexpr int32_t kTo = 256, kBe = 257, kSpaceTo = 258, kSpaceBe = 259, kEnd = 260;

// Text of several windows of 1 MiB.
std::string long_text() {
  std::string content;
  while (content.size() < (5u << 20)) content += "to be or not to be\n";
  return content;
}

class TokenCacheTest : public testing::FolderFixture {
 protected:
  void SetUp() override { write("t.json", test::to_json(test::small_tokenizer())); }
  config::DatasetConfig text(int64_t block_size, bool is_shared = false) const {
    config::DatasetConfig config;
    config::TextDataset source{.path = path("data"),
                               .sequence = {.block_size = block_size},
                               .tokenizer = config::TokenizerConfig{path("t.json")}};
    if (is_shared) source.token_cache = config::TokenCacheConfig{path("shared")};
    config.source = source;
    return config;
  }
  // Opens the dataset like a separate run, with its own index.
  Result<std::unique_ptr<Dataset>> run(const std::string& name, const config::DatasetConfig& config,
                                       const Sandbox* sandbox = nullptr) const {
    return pipeline::open_dataset("train", config, path(name), {}, 0, sandbox);
  }
  // The tokens of a text, in parts of about this number of bytes.
  Result<files::IndexMetadata> build(const config::DatasetConfig& config, uint64_t part_bytes,
                                     const files::ScanProgress& progress = {},
                                     const Sandbox* sandbox = nullptr) const {
    const std::string name = "train", index = index_dir();
    std::filesystem::create_directories(index);
    const DatasetRequest request{
        .name = name, .config = config, .index_dir = index, .maybe_sandbox = sandbox};
    files::FileTable files;
    if (std::filesystem::is_directory(path("data"))) {
      for (int i = 0; std::filesystem::exists(path("data/" + std::to_string(i))); ++i)
        EXPECT_TRUE(files::scan_file(path("data/" + std::to_string(i)), files).ok());
    } else {
      EXPECT_TRUE(files::scan_file(path("data"), files).ok());
    }
    return build_token_cache(request, files, *tokenizer::Tokenizer::read(path("t.json")), progress,
                             part_bytes);
  }
  // The number of complete parts in a folder.
  static size_t num_parts(const std::string& folder) {
    const auto names = list_directory(folder);
    EXPECT_TRUE(names.ok()) << names.status().to_string();
    return !names.ok()
               ? 0
               : static_cast<size_t>(std::ranges::count_if(
                     *names, [](const std::string& name) { return name.ends_with(".tokens"); }));
  }
};

TEST_F(TokenCacheTest, EncodesFilesWithEndTokens) {
  write("data/1", "to be");
  write("data/2", "");
  write("data/3", "be to");
  const auto dataset = run("index", text(2));
  ASSERT_TRUE(dataset.ok()) << dataset.status().to_string();
  EXPECT_EQ((*dataset)->size(), 2u);
  EXPECT_EQ((*dataset)->classes(), 261u);
  EXPECT_EQ((*dataset)->spec()[0],
            (TensorSpec{.name = "tokens", .dtype = DType::kI32, .shape = {3}}));
  EXPECT_THAT(read_sample(**dataset, 0).values<int32_t>(0), ElementsAre(kTo, kSpaceBe, kEnd));
  EXPECT_THAT(read_sample(**dataset, 1).values<int32_t>(0), ElementsAre(kEnd, kBe, kSpaceTo));
}

TEST_F(TokenCacheTest, SplitsByToken) {
  write("data/1", "to be to be to be to be");  // and the end
  auto config = text(1);
  config.split = {0, 0.34};
  const auto train = run("index", config);
  config.split = {0.34, 1};
  const auto val = run("other", config);
  ASSERT_TRUE(train.ok() && val.ok());
  EXPECT_EQ((*train)->size() + (*val)->size(), 7u);
}

TEST_F(TokenCacheTest, ReadsLargeVocabulary) {
  auto file = test::small_tokenizer();
  for (int i = 0; i < 66000; ++i) file.added_tokens.push_back("<" + std::to_string(i) + ">");
  write("t.json", test::to_json(file));
  write("data/1", "to<65999>be");
  const auto dataset = run("index", text(2));
  ASSERT_TRUE(dataset.ok()) << dataset.status().to_string();
  EXPECT_THAT(read_sample(**dataset, 0).values<int32_t>(0), ElementsAre(kTo, 261 + 65999, kBe));
}

TEST_F(TokenCacheTest, HasFingerprintOfTokenizer) {
  write("data/1", "to be to be");
  const auto first = run("index", text(1));
  write("t.json", test::to_json(test::small_tokenizer()) + " ");
  const auto second = run("index", text(1));
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE((*first)->fingerprint(), (*second)->fingerprint());
  EXPECT_EQ(num_parts(path("index")), 1u) << "those of the first tokenizer are removed";
}

TEST_F(TokenCacheTest, TokenizesAgainIfIndexIsOfAnotherTokenizer) {
  write("data/1", "to be");
  const FakeSandbox sandbox(path("t.json"));
  ASSERT_TRUE(run("index", text(1), &sandbox).ok());
  ASSERT_EQ(sandbox.num_texts, 1u);
  // As if the tokenizer had changed and was restored while its text was encoded.
  const std::string file = path("index/train.index");
  auto index = files::load_index(file);
  ASSERT_TRUE(index.ok()) << index.status().to_string();
  const std::string digest = index->metadata.names.at(0);
  index->metadata.names = {std::string(64, '0')};
  ASSERT_TRUE(files::save_index(*index, file).ok());
  const auto opened = pipeline::open_indexed("train", text(1), path("index"), "");
  EXPECT_EQ(opened.status().code(), StatusCode::kMismatch);
  EXPECT_THAT(opened.status().message(),
              HasSubstr("data.train.tokenizer.path: the file changed after its text was "
                        "tokenized; restart to tokenize again"));
  ASSERT_TRUE(run("index", text(1), &sandbox).ok());
  EXPECT_EQ(files::load_index(file)->metadata.names, std::vector{digest});
}

TEST_F(TokenCacheTest, KeepsNoTokensOfTextThatChanges) {
  write("data", long_text());
  bool is_changed = false;
  const auto change = [&](uint64_t count, std::string_view) {
    if (count < 2 || is_changed) return;
    is_changed = true;
    write("data", std::string(long_text().size(), 'x') + "more");
  };
  const auto built = build(text(1), 4 << 20, change);
  EXPECT_TRUE(is_changed);
  EXPECT_EQ(built.status().code(), StatusCode::kCorrupt);
  EXPECT_THAT(built.status().message(), HasSubstr("since it was indexed; restart"));
  EXPECT_EQ(num_parts(index_dir()), 0u);
}

TEST_F(TokenCacheTest, ReportsProgressWithinPartFromWorkerProcess) {
  write("data", long_text());
  uint64_t reported = 0;
  const files::ScanProgress progress = [&](uint64_t count, std::string_view) {
    EXPECT_GE(count, reported);
    reported = count;
  };
  const FakeSandbox sandbox(path("t.json"));
  ASSERT_TRUE(pipeline::open_dataset("train", text(1), path("index"), progress, 0, &sandbox).ok());
  EXPECT_GE(reported, 4u);
}

TEST_F(TokenCacheTest, NamesTokenizerInErrors) {
  write("data/1", "to be");
  write("t.json", "{");
  expect_error(text(1), StatusCode::kCorrupt,
               {"data.train.tokenizer.path: ", "t.json: is not JSON"});
  std::filesystem::remove(path("t.json"));
  expect_error(text(1), StatusCode::kNotFound, {"data.train.tokenizer.path: "});
}

TEST_F(TokenCacheTest, RequiresText) {
  write("data/1", "");
  expect_error(text(1), StatusCode::kCorrupt, {"data.train.path", "there is no text"});
  write("data/1", "to be");
  expect_error(text(9), StatusCode::kInvalidArgument, {"data.train.path", "3 tokens"});
}

TEST_F(TokenCacheTest, HasSameTokensInPartsAndSandbox) {
  std::string content;
  for (int i = 0; i < 3000; ++i) content += i % 7 == 0 ? "to be, or not\n" : " to be\xff";
  write("data", content);
  auto whole = build(text(1), content.size());
  ASSERT_TRUE(whole.ok()) << whole.status().to_string();
  ASSERT_EQ(whole->made.size(), 1u);
  const std::string expected = content_of(whole->made.path(0).substr(root_.string().size() + 1))
                                   .substr(0, 2 * whole->numbers[0]);
  std::filesystem::remove_all(index_dir());
  auto parts = build(text(1), 1);
  ASSERT_TRUE(parts.ok()) << parts.status().to_string();
  std::string found;
  for (size_t part = 0; part < parts->made.size(); ++part)
    found += content_of(parts->made.path(part).substr(root_.string().size() + 1))
                 .substr(0, 2 * parts->numbers[part]);
  EXPECT_EQ(found, expected);
  const FakeSandbox sandbox(path("t.json"));
  const auto sandboxed = run("sandboxed", text(5), &sandbox), local = run("local", text(5));
  ASSERT_TRUE(sandboxed.ok() && local.ok());
  EXPECT_GT(sandbox.num_texts, 0u);
  for (uint64_t sample = 0; sample < (*local)->size(); ++sample)
    EXPECT_EQ(read_sample(**sandboxed, sample).tensors, read_sample(**local, sample).tensors);
}

// Texts whose windows begin in runs of digits, of three each, or of letters, or at invalid bytes; a
// piece of more than a window; and short ones.
std::vector<std::string> difficult_texts() {
  constexpr size_t kWindow = 1 << 20;
  std::string digits, letters, invalid;
  while (digits.size() < kWindow - 5000) digits += "to be ";
  digits += 'x' + std::string(10007, '7');
  while (digits.size() < kWindow + 60000) digits += " be<|endoftext|>to";
  while (letters.size() < kWindow - 1000) letters += std::string(60, 'z') + ' ';
  letters += std::string(9000, 'x') + " to be";
  while (invalid.size() < kWindow + 500) invalid += "\xe2\x82\xac\xff \xf0\x9f\x98";
  return {digits, letters, "to", std::string(kWindow + 10, 'y') + " be", "", invalid, "to be to"};
}

class DocumentEncoderTest : public TokenCacheTest {
 protected:
  void SetUp() override {
    TokenCacheTest::SetUp();
    auto file = test::small_tokenizer();
    file.merges.emplace_back("7", "7");
    file.pre_tokenizer =
        R"({"type": "Sequence", "pretokenizers": [{"type": "Split", "behavior": "Isolated", )"
        R"("pattern": {"Regex": "\\p{N}{1,3}| ?\\p{L}+|\\s+|[^\\s\\p{L}\\p{N}]"}}, )"
        R"({"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]})";
    write("t.json", test::to_json(file));
    const auto texts = difficult_texts();
    for (size_t i = 0; i < texts.size(); ++i) write("data/" + std::to_string(i), texts[i]);
  }
  // All tokens, as bytes.
  std::string encoded(size_t num_threads, uint64_t part_bytes) const {
    std::filesystem::remove_all(index_dir());
    const FakeSandbox sandbox(path("t.json"), {}, num_threads);
    return tokens_of(build(text(1), part_bytes, {}, &sandbox));
  }
  std::string tokens_of(const Result<files::IndexMetadata>& metadata) const {
    EXPECT_TRUE(metadata.ok()) << metadata.status().to_string();
    std::string tokens;
    for (size_t part = 0; metadata.ok() && part < metadata->made.size(); ++part)
      tokens += content_of(metadata->made.path(part).substr(root_.string().size() + 1))
                    .substr(0, 2 * metadata->numbers[part]);
    return tokens;
  }
};

TEST_F(DocumentEncoderTest, HasSameTokensWithAnyNumberOfThreads) {
  std::vector<int32_t> ids;
  tokenizer::TextEncoder encoder(*tokenizer::Tokenizer::read(path("t.json")));
  for (std::string text : difficult_texts()) {
    if (text.empty()) continue;
    if (text[0] == 'y') {  // cut at the end of its window
      ASSERT_TRUE(encoder.encode(text.substr(0, 1 << 20), ids).ok());
      text = text.substr(1 << 20);
    }
    ASSERT_TRUE(encoder.encode(text, ids).ok());
    ids.push_back(*encoder.tokenizer().end_token());
  }
  std::string expected;
  for (const int32_t id : ids) {
    expected += static_cast<char>(id % 256);
    expected += static_cast<char>(id / 256);
  }
  constexpr uint64_t kOnePart = uint64_t{1} << 30;
  EXPECT_TRUE(encoded(1, kOnePart) == expected) << "one thread";
  EXPECT_TRUE(encoded(3, 1) == expected) << "three threads, many parts";
}

TEST_F(DocumentEncoderTest, EncodesOnSeveralThreads) {
  std::mutex mutex;
  std::condition_variable changed;
  size_t num_inside = 0;
  bool has_met = false;
  const auto meet = [&](TextTokenizer::Part&) {
    std::unique_lock lock(mutex);
    ++num_inside;
    has_met = has_met || num_inside == 3;
    changed.notify_all();
    changed.wait_for(lock, std::chrono::seconds(60), [&] { return has_met; });
    --num_inside;
  };
  const FakeSandbox sandbox(path("t.json"), meet, 3);
  ASSERT_TRUE(build(text(1), 1 << 30, {}, &sandbox).ok());
  EXPECT_TRUE(has_met);
}

// Of three threads, one or all find no memory for their process.
TEST_F(DocumentEncoderTest, EncodesOnFewerThreadsWithoutMemoryForAll) {
  const std::string expected = encoded(3, 1 << 30);
  std::filesystem::remove_all(index_dir());
  const FakeSandbox sandbox(path("t.json"), {}, 3);
  sandbox.max_tokenizers = 1;
  EXPECT_TRUE(tokens_of(build(text(1), 1 << 30, {}, &sandbox)) == expected);
  std::filesystem::remove_all(index_dir());
  sandbox.max_tokenizers = 0;
  EXPECT_EQ(build(text(1), 1 << 30, {}, &sandbox).status().code(), StatusCode::kNoSpace);
}

TEST_F(DocumentEncoderTest, EndsWhenProgressStopsIt) {
  const FakeSandbox sandbox(path("t.json"), {}, 2);
  const auto stop = [](uint64_t count, std::string_view) {
    if (count >= 1) throw files::ScanStopped();
  };
  EXPECT_THROW((void)build(text(1), 1 << 30, stop, &sandbox), files::ScanStopped);
}

TEST_F(DocumentEncoderTest, ReportsExceptionsOfThreads) {
  const FakeSandbox sandbox(
      path("t.json"), [](TextTokenizer::Part&) { throw std::bad_alloc(); }, 2);
  const auto built = build(text(1), 1 << 30, {}, &sandbox);
  EXPECT_EQ(built.status().code(), StatusCode::kOutOfMemory) << built.status().to_string();
}

TEST_F(TokenCacheTest, ContinuesAfterInterruption) {
  write("data", long_text());
  const uint64_t part_bytes = 1 << 20;
  const auto stop = [](uint64_t mebibytes, std::string_view) {
    if (mebibytes >= 3) throw files::ScanStopped();
  };
  EXPECT_THROW((void)build(text(1), part_bytes, stop), files::ScanStopped);
  const size_t num_complete = num_parts(index_dir());
  ASSERT_GE(num_complete, 1u) << "complete parts remain";
  uint64_t encoded = 0;
  const FakeSandbox sandbox(
      path("t.json"), [&](auto& part) { encoded += part.ids.size(); }, 1);
  const auto rest = build(text(1), part_bytes, {}, &sandbox);
  ASSERT_TRUE(rest.ok()) << rest.status().to_string();
  ASSERT_GT(rest->numbers.size(), num_complete);
  uint64_t tokens = 0, complete = 0;
  for (size_t part = 0; part < rest->numbers.size(); ++part) {
    tokens += rest->numbers[part];
    if (part < num_complete) complete += rest->numbers[part];
  }
  // The last bytes of each window are encoded twice, to find the start of the next one.
  EXPECT_GE(encoded + 1, tokens - complete) << "all others; the end token is added";
  EXPECT_LT(encoded, tokens - complete / 2) << "complete parts are not encoded again";
  std::filesystem::remove_all(index_dir());
  const auto whole = build(text(1), 1 << 30);
  ASSERT_TRUE(whole.ok());
  EXPECT_EQ(tokens, whole->numbers[0]);
}

TEST_F(TokenCacheTest, ContinuesAfterKill) {
  write("data", long_text());
  const uint64_t part_bytes = 1 << 20;
  const auto killed = [](uint64_t count, std::string_view) {
    if (count >= 3) ::raise(SIGKILL);
  };
  EXPECT_EXIT((void)build(text(1), part_bytes, killed), ::testing::KilledBySignal(SIGKILL), "");
  EXPECT_GE(num_parts(index_dir()), 1u) << "complete parts remain";
  const auto rest = build(text(1), part_bytes);
  ASSERT_TRUE(rest.ok()) << rest.status().to_string();
  std::string tokens;
  for (size_t part = 0; part < rest->made.size(); ++part)
    tokens += content_of(rest->made.path(part).substr(root_.string().size() + 1))
                  .substr(0, 2 * rest->numbers[part]);
  std::filesystem::remove_all(index_dir());
  const auto whole = build(text(1), 1 << 30);
  ASSERT_TRUE(whole.ok());
  EXPECT_EQ(tokens, content_of(whole->made.path(0).substr(root_.string().size() + 1))
                        .substr(0, 2 * whole->numbers[0]));
}

TEST_F(TokenCacheTest, ReplacesCorruptPart) {
  write("data", "to be to be");
  const auto first = build(text(1), 1 << 20);
  ASSERT_TRUE(first.ok());
  const std::string name = first->made.path(0).substr(root_.string().size() + 1);
  const std::string good = content_of(name);
  for (const size_t at : {size_t{0}, good.size() - 1, good.size() - 90}) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 1);
    write(name, bad);
    const auto again = build(text(1), 1 << 20);
    ASSERT_TRUE(again.ok()) << again.status().to_string();
    EXPECT_EQ(content_of(name), good) << at;
  }
  write(name, good.substr(0, 10));
  ASSERT_TRUE(build(text(1), 1 << 20).ok());
  EXPECT_EQ(content_of(name), good);
}

TEST_F(TokenCacheTest, SharesPartsBetweenRuns) {
  write("data", "to be to be");
  const FakeSandbox sandbox(path("t.json"));
  const auto first = run("first", text(1, true), &sandbox);
  ASSERT_TRUE(first.ok()) << first.status().to_string();
  EXPECT_EQ(sandbox.num_texts, 1u);
  const auto second = run("second", text(1, true), &sandbox);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(sandbox.num_texts, 1u);
  EXPECT_EQ((*first)->fingerprint(), (*second)->fingerprint());
  // Another tokenizer has other files.
  write("t.json", test::to_json(test::small_tokenizer()) + " ");
  ASSERT_TRUE(run("third", text(1, true), &sandbox).ok());
  EXPECT_EQ(sandbox.num_texts, 2u);
}

TEST_F(TokenCacheTest, CutsPieceThatIsNeverSplit) {
  write("data", std::string((1 << 20) + 10, 'x') + " to");
  const auto dataset = run("index", text(1));
  ASSERT_TRUE(dataset.ok()) << dataset.status().to_string();
  EXPECT_EQ((*dataset)->size(), (1u << 20) + 11);
}

TEST_F(TokenCacheTest, RejectsImpossibleResultsOfSandbox) {
  write("data", "to be to be");
  const auto expect = [&](const FakeSandbox::Change& change) {
    const FakeSandbox sandbox(path("t.json"), change);
    const auto dataset = run("index", text(1), &sandbox);
    EXPECT_EQ(dataset.status().code(), StatusCode::kCorrupt) << dataset.status().to_string();
    EXPECT_THAT(dataset.status().message(),
                HasSubstr("data: the text at offset 0: its worker process sent an impossible"));
  };
  expect([](auto& part) { part.ids[0] = 261; });
  expect([](auto& part) { part.ids[0] = -1; });
  expect([](auto& part) { part.bytes = 1 << 20; });
  expect([](auto& part) { part.bytes = 3; });
  expect([](auto& part) { part.ids.resize(11 * 11 + 4); });
}

TEST_F(TokenCacheTest, RejectsMoreTokensThanTheirTextCanHave) {
  write("data", long_text());
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}}) {
    const FakeSandbox sandbox(path("t.json"), [=](auto& part) { part.bytes = bytes; });
    const auto built = build(text(1), 1 << 30, {}, &sandbox);
    EXPECT_EQ(built.status().code(), StatusCode::kCorrupt) << built.status().to_string();
    EXPECT_THAT(built.status().message(), HasSubstr("its worker process sent an impossible"));
  }
}

TEST_F(TokenCacheTest, RejectsIndexOfAnotherTokenizer) {
  files::IndexMetadata metadata;
  EXPECT_EQ(token_cache_bytes(metadata, 2).status().code(), StatusCode::kCorrupt);
  metadata.made.add("a", {.size = 100});
  metadata.numbers = {51};
  EXPECT_EQ(token_cache_bytes(metadata, 2).status().code(), StatusCode::kCorrupt);
  metadata.numbers = {50};
  EXPECT_EQ(*token_cache_bytes(metadata, 2), (std::vector<uint64_t>{100}));
}

}  // namespace
}  // namespace stoker::data::cache
