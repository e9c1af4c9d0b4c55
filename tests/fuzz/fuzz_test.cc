// Runs the seeds of every format, mutations of them, the corpus and the regression inputs without a
// fuzzer.
#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include <gtest/gtest.h>

#include "shared/base/file.h"
#include "tests/fuzz/format.h"
#include "tests/support/temporary_directory.h"

namespace stoker::fuzz {
namespace {

// Per kind of mutation and seed, spread over its bytes. Most errors show with AddressSanitizer only.
#ifdef __SANITIZE_ADDRESS__
constexpr size_t kMaxMutations = 800;
#else
constexpr size_t kMaxMutations = 200;
#endif

// There are few assertions, because a violated invariant aborts and GoogleTest reports the test.
class FuzzFormatTest : public testing::TestWithParam<Format> {
 protected:
  // Runs `mutate(input, at)` for positions from the first to the last byte.
  template <typename Mutation>
  void run_mutated(const Mutation& mutate) const {
    for (const std::string& seed : GetParam().seeds()) {
      const size_t stride = std::max<size_t>(1, seed.size() / kMaxMutations);
      for (size_t at = 0; at < seed.size(); at += stride) GetParam().run(mutate(seed, at));
    }
  }
};

const std::filesystem::path kInputs = STOKER_FUZZ_INPUTS;

// Runs the inputs in a folder. Returns their number.
size_t run_files(const Format& format, const std::filesystem::path& files) {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(files)) {
    SCOPED_TRACE(entry.path().string());
    const auto input = read_file(entry.path().string(), 1 << 24);
    EXPECT_TRUE(input.ok()) << input.status().to_string();
    if (input.ok()) format.run(*input);
    ++count;
  }
  return count;
}

TEST_P(FuzzFormatTest, AcceptsEachSeed) {
  const auto seeds = GetParam().seeds();
  EXPECT_FALSE(seeds.empty());
  for (size_t i = 0; i < seeds.size(); ++i) EXPECT_TRUE(GetParam().run(seeds[i])) << "seed " << i;
}

TEST_P(FuzzFormatTest, PreservesInvariantsOnTruncation) {
  run_mutated([](const std::string& seed, size_t at) { return seed.substr(0, at); });
}

TEST_P(FuzzFormatTest, PreservesInvariantsOnChangedByte) {
  for (const int change : {0x01, 0x80, 0xff}) {
    run_mutated([change](std::string seed, size_t at) {
      seed[at] = static_cast<char>(seed[at] ^ change);
      return seed;
    });
  }
}

TEST_P(FuzzFormatTest, PreservesInvariantsOnInsertedOrRemovedByte) {
  run_mutated([](std::string seed, size_t at) { return seed.erase(at, 1); });
  run_mutated([](std::string seed, size_t at) { return seed.insert(at, 1, seed[at]); });
}

INSTANTIATE_TEST_SUITE_P(Formats, FuzzFormatTest,
                         testing::ValuesIn(formats().begin(), formats().end()),
                         [](const auto& format) { return std::string(format.param.name); });

TEST(FuzzInputsTest, PreserveInvariantsOnCorpusOfEachFormat) {
  for (const Format& format : formats()) {
    const auto archive = kInputs / "corpus" / (std::string(format.name) + ".tar.gz");
    ASSERT_TRUE(std::filesystem::exists(archive))
        << archive << " is missing; create it with scripts/fuzz.sh --merge 60 " << format.name;
    const test::TemporaryDirectory files;
    ASSERT_EQ(
        std::system(("tar -xzf '" + archive.string() + "' -C '" + files.path() + "'").c_str()), 0);
    EXPECT_GT(run_files(format, files.path()), 0u) << archive << " is empty";
  }
}

TEST(FuzzInputsTest, PassAllRegressionInputs) {
  size_t num_formats = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kInputs / "regressions")) {
    const std::string name = entry.path().filename();
    const Format* const format = find_format(name);
    ASSERT_NE(format, nullptr) << entry.path() << ": there is no such format";
    EXPECT_GT(run_files(*format, entry.path()), 0u) << entry.path() << ": is empty";
    ++num_formats;
  }
  EXPECT_GT(num_formats, 0u);
}

TEST(SplitInputTest, RoundTripsJoinedInputAndAcceptsAnyBytes) {
  const std::string joined = join_input({"first", "", "rest"});
  EXPECT_EQ(split_input(joined, 3), (std::vector<std::string_view>{"first", "", "rest"}));
  EXPECT_EQ(split_input("", 2), (std::vector<std::string_view>{"", ""}));
  EXPECT_EQ(split_input("\x05", 2), (std::vector<std::string_view>{"", ""}));
  EXPECT_EQ(split_input(std::string("\xff\xff"
                                    "ab"),
                        2),
            (std::vector<std::string_view>{"ab", ""}));
}

}  // namespace
}  // namespace stoker::fuzz
