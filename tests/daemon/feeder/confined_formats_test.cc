// Every kind of data is read by a confined stoker-feed as it is read here, unconfined: each batch is
// compared with what the data set itself gives.
#include <random>

#include <gtest/gtest.h>

#include "daemon/feeder/confinement.h"
#include "tests/daemon/feeder/feeder_fixture.h"
#include "tests/shared/image/picture_files.h"

namespace stoker::feeder {
namespace {

using config::DatasetKind;

std::string random_bytes(size_t count) {
  std::string bytes(count, '\0');
  std::mt19937 random(7);
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

std::string big_endian(uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16),
          static_cast<char>(value >> 8), static_cast<char>(value)};
}

// One kind: what it takes on disk, and the same settings as a struct and as YAML.
struct Kind {
  const char* name;
  std::function<config::DatasetConfig(const std::string& folder)> write;
  const char* yaml;  // of data.train, but for the path
};

void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

config::DatasetConfig text(const std::string& folder) {
  std::ofstream(folder + "/data") << random_bytes(20'000);
  return {.kind = DatasetKind::kText, .path = folder + "/data", .context = 64};
}

config::DatasetConfig tokens(const std::string& folder) {
  std::ofstream(folder + "/data") << random_bytes(40'000);
  return {.kind = DatasetKind::kTokens, .path = folder + "/data", .context = 64};
}

config::DatasetConfig images(const std::string& folder) {
  for (const char* name : {"cat", "dog"}) {
    std::filesystem::create_directories(folder + "/data/" + name);
    const auto pixels = image::testing::pattern(90, 120);
    for (int i = 0; i < 24; ++i) {
      const std::string pictures[] = {image::testing::jpeg_of(pixels, {.progressive = i % 2 == 0}),
                                      image::testing::png_of(pixels, {.interlaced = i % 2 == 0}),
                                      image::testing::webp_of(pixels)};
      std::ofstream(folder + "/data/" + name + "/" + std::to_string(i)) << pictures[i % 3];
    }
  }
  return {.kind = DatasetKind::kImages, .path = folder + "/data", .size = {32, 32}};
}

config::DatasetConfig idx(const std::string& folder) {
  std::ofstream(folder + "/data") << big_endian(2051) << big_endian(50) << big_endian(28)
                                  << big_endian(28) << random_bytes(50 * 28 * 28);
  std::ofstream(folder + "/labels") << big_endian(2049) << big_endian(50) << std::string(50, '\3');
  return {.kind = DatasetKind::kIdx, .path = folder + "/data", .labels = folder + "/labels"};
}

config::DatasetConfig cifar(const std::string& folder) {
  std::string bytes = random_bytes(50 * 3073);
  for (size_t record = 0; record < 50; ++record)
    bytes[record * 3073] = static_cast<char>(record % 10);
  std::ofstream(folder + "/data") << bytes;
  return {.kind = DatasetKind::kCifar, .path = folder + "/data", .classes = 10};
}

config::DatasetConfig csv(const std::string& folder) {
  std::ofstream file(folder + "/data");
  file << "a,b,kind\n";
  for (int i = 0; i < 60; ++i) file << i << ',' << -i << (i % 3 == 0 ? ",cat\n" : ",dog\n");
  return {.kind = DatasetKind::kCsv, .path = folder + "/data", .label = "kind"};
}

config::DatasetConfig jsonl(const std::string& folder) {
  std::ofstream file(folder + "/data");
  for (int i = 0; i < 60; ++i)
    file << "{\"x\": [" << i << ", " << -i << "], \"y\": " << i % 3 << "}\n";
  return {.kind = DatasetKind::kJsonl,
          .path = folder + "/data",
          .input = {"x"},
          .shape = {2},
          .label = "y"};
}

std::string npy_of(const std::string& type, const std::string& shape, const std::string& bytes) {
  std::string head = "{'descr': '" + type + "', 'fortran_order': False, 'shape': " + shape + ", }";
  head.resize(118 - 1, ' ');  // with the 10 bytes before it a multiple of 64
  head += '\n';
  const std::string length{static_cast<char>(head.size()), '\0'};
  return std::string("\x93NUMPY\x01\0", 8) + length + head + bytes;
}

config::DatasetConfig npy(const std::string& folder) {
  std::ofstream(folder + "/data.npy") << npy_of("|u1", "(60, 12)", random_bytes(60 * 12));
  std::ofstream(folder + "/labels.npy") << npy_of("|u1", "(60,)", std::string(60, '\3'));
  return {
      .kind = DatasetKind::kNpy, .path = folder + "/data.npy", .labels = folder + "/labels.npy"};
}

config::DatasetConfig synthetic(const std::string&) { return synthetic_config(); }

class ConfinedFormats : public FeederTest, public ::testing::WithParamInterface<Kind> {
 protected:
  void SetUp() override {
    FeederTest::SetUp();
    settings_.feed_program = FEED_PROGRAM;
  }
  void write_settings() const {
    const std::string name = GetParam().name;
    const bool sequence = name == "text" || name == "tokens";
    std::string set = GetParam().yaml;
    for (const auto& [word, value] :
         {std::pair("PATH", path("data")), std::pair("LABELS", path("labels"))})
      if (const size_t at = set.find(word); at != std::string::npos)
        set.replace(at, std::string(word).size(), value);
    std::ofstream(settings_.config_path)
        << "run: {seed: 9}\ndata:\n  train: {kind: " << name << ", " << set << "}\n"
        << (sequence ? "model: {kind: gpt, vocab: 65536}\n"
                     : "model: {kind: mlp, hidden: [8]}\ntask: {kind: classification}\n")
        << "train: {batch: " << kBatch << "}\n";
  }
};

TEST_P(ConfinedFormats, AreReadAsTheyAreUnconfined) {
  open_data(GetParam().write(directory_));
  write_settings();
  open_ring({.slots = 4});
  ASSERT_TRUE(start().ok());
  for (uint64_t ticket = 0; ticket < 10; ++ticket) ASSERT_NO_FATAL_FAILURE(expect_next(ticket));
  const auto ids = supervisor_->process_ids();
  ASSERT_EQ(ids.size(), 1u);
  std::ifstream file("/proc/" + std::to_string(ids[0]) + "/status");
  const std::string status{std::istreambuf_iterator<char>(file), {}};
  EXPECT_NE(status.find("NoNewPrivs:\t1"), std::string::npos);
  EXPECT_EQ(status.find("Seccomp:\t2") != std::string::npos, !kSanitized);
  supervisor_->stop();
  EXPECT_EQ(supervisor_->deaths(), 0u);
  EXPECT_EQ(supervisor_->bad_samples(), 0u);
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, ConfinedFormats,
    ::testing::Values(Kind{"text", text, "path: PATH, context: 64"},
                      Kind{"tokens", tokens, "path: PATH, context: 64"},
                      Kind{"images", images, "path: PATH, size: [32, 32]"},
                      Kind{"idx", idx, "path: PATH, labels: LABELS"},
                      Kind{"cifar", cifar, "path: PATH, classes: 10"},
                      Kind{"csv", csv, "path: PATH, label: kind"},
                      Kind{"jsonl", jsonl, "path: PATH, input: x, shape: [2], label: y"},
                      Kind{"npy", npy, "path: PATH.npy, labels: LABELS.npy"},
                      Kind{"synthetic", synthetic, "samples: 500, features: [3, 10], classes: 4"}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace stoker::feeder
