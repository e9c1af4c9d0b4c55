// SlotWriter: a thread that changes the integers in the slots of a ring, as a faulty or hostile
// process can. all_tasks(): data and a model for each task, with all integer tensors it supports.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <fstream>
#include <limits>
#include <ostream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "shared/config/load_config.h"
#include "shared/feed/batch_receiver.h"
#include "shared/ring/shm_ring.h"
#include "tests/shared/image/image_files.h"
#include "tests/shared/ring/ring_view.h"

namespace stoker::hostile {

struct TaskSetup {
  std::string task;
  std::string data;  // of the records in `folder`, without format and path
  std::string model;
  bool has_integers = true;

  bool has_captions() const { return task == "captioning"; }

  // Writes the records.
  config::Config config(const std::string& folder) const {
    const std::string path = folder + "/records.jsonl";
    const std::string format = has_captions() ? "image_list" : "jsonl";
    if (has_captions()) {
      std::ofstream(folder + "/image.png", std::ios::binary)
          << image::testing::encode_png_file(image::testing::pattern(8, 8));
      std::ofstream(folder + "/words.txt") << "a\nred\nblue\ncircle\nsquare\n";
    }
    std::ofstream file(path);
    for (int i = 0; i < 64; ++i) {
      std::string tokens, frames;
      for (int at = 0; at < 6 + i % 4; ++at) {
        tokens += (at > 0 ? ", " : "") + std::to_string((at * 7 + i) % 11);
        frames += std::string(at > 0 ? ", " : "") + (at % 2 == 0 ? "[1, 0, 0]" : "[0, 0.5, 1]");
      }
      file << "{\"tokens\": [" << tokens << "], \"tags\": [" << tags(tokens) << "], \"frames\": ["
           << frames << "], \"letters\": [1, 2, 3], \"class\": " << i % 4
           << ", \"numbers\": [0.5, -1, " << i % 5 << "], \"targets\": [" << i % 2
           << ", 1], \"side\": " << i % 2 << ", \"file\": \"image.png\", \"caption\": \"a "
           << (i % 2 == 0 ? "red circle" : "blue square") << "\"}\n";
    }
    file.close();
    auto config =
        config::parse_config("data: {train: {format: " + format + ", path: " + path + ", " + data +
                                 (has_captions() ? folder + "/words.txt}" : "") +
                                 "}}\nmodel: " + model + "\ntask: {name: " + task +
                                 "}\ntrain: {max_steps: 100, micro_batch_size: 4, device: cpu}\n"
                                 "checkpoint: {save_every_steps: null, save_every_seconds: null}\n",
                             "test.yaml", {});
    EXPECT_TRUE(config.ok()) << config.status().to_string();
    return config.ok() ? *std::move(config) : config::Config();
  }

 private:
  // A tag from 0 to 3 for each token.
  static std::string tags(std::string tokens) {
    std::string tags;
    for (size_t at = 0; at < tokens.size(); ++at)
      if (at + 1 == tokens.size() || tokens[at + 1] == ',')
        tags += (tags.empty() ? "" : ", ") + std::to_string((tokens[at] - '0') % 4);
    return tags;
  }
};

inline void PrintTo(const TaskSetup& setup, std::ostream* out) { *out << setup.task; }

inline std::vector<TaskSetup> all_tasks() {
  const std::string sequence = "sequence: {max_length: 9}",
                    numbers =
                        "fields: {input: numbers, target: targets}, input_shape: [3], "
                        "num_targets: 2";
  const std::string blstm = "{name: blstm, hidden_size: 6, vocab_size: 11}",
                    mlp = "{name: mlp, hidden_sizes: [8]}";
  return {{"language_modeling", "fields: {input_ids: tokens}, " + sequence,
           "{name: gpt, num_layers: 1, num_heads: 1, embed_dim: 8, context_length: 9, "
           "vocab_size: 11}"},
          {"classification", "fields: {input_ids: tokens, label: class}, " + sequence, blstm},
          {"binary_classification", "fields: {input: numbers, label: side}, input_shape: [3]", mlp},
          {"sequence_labeling", "fields: {input_ids: tokens, labels: tags}, " + sequence, blstm},
          {"ctc",
           "fields: {input: frames, labels: letters}, input_shape: [3], "
           "sequence: {max_length: 9, max_label_length: 3}",
           "{name: blstm, hidden_size: 6}"},
          {"captioning",
           "fields: {image: file, caption: caption}, transforms: [resize: {size: [8, 8]}], "
           "tokenizer: {path: ",
           "{name: captioner, encoder: {name: resnet8}, decoder: {name: lstm, hidden_size: 8}, "
           "max_length: 4}"},
          {"multilabel_classification", numbers, mlp, false},
          {"regression", numbers, mlp, false}};
}

// Positions of the tensors of integers, which the trainer copies.
inline std::vector<size_t> integer_tensors(const ring::BatchLayout& layout) {
  std::vector<size_t> found;
  for (size_t i = 0; i < layout.sample().size(); ++i)
    if (feed::BatchReceiver::is_copied(layout.sample()[i])) found.push_back(i);
  return found;
}

// Makes all integers of the batch invalid, in its slot.
inline void overwrite_integers(const ring::RingView& view, const ring::BatchLayout& layout,
                               uint64_t ticket) {
  for (const size_t i : integer_tensors(layout))
    std::ranges::fill(layout.rows(view.slot(ticket), i, 0, layout.batch()), std::byte{0xff});
}

// Continuously replaces a random integer in a random slot with another value, possibly invalid, and
// restores it. Without integers it changes any byte.
class SlotWriter {
 public:
  explicit SlotWriter(const ring::ShmRing& ring)
      : view_(ring),
        layout_(ring.layout()),
        integers_(integer_tensors(layout_)),
        thread_([this](const std::stop_token& stop) {
          while (!stop.stop_requested()) write();
        }) {}

 private:
  void write() {
    const std::span<std::byte> slot = view_.slot(random_());
    if (integers_.empty()) {
      auto& byte = reinterpret_cast<uint8_t&>(slot[random_() % slot.size()]);
      ring::overwrite(byte, static_cast<uint8_t>(random_()));
      return;
    }
    const size_t tensor = integers_[random_() % integers_.size()];
    const std::span<std::byte> bytes = layout_.rows(slot, tensor, 0, layout_.batch());
    if (dtype_bytes(layout_.sample()[tensor].dtype) == sizeof(int64_t)) {
      replace_for_a_moment<int64_t>(bytes);
    } else {
      replace_for_a_moment<int32_t>(bytes);
    }
  }

  // Long enough to be seen, and seldom enough invalid for some batches to be valid.
  template <typename T>
  void replace_for_a_moment(std::span<std::byte> bytes) {
    static constexpr std::array<int64_t, 8> kInvalid{-1,
                                                     -100,
                                                     0,
                                                     4,
                                                     11,
                                                     1 << 20,
                                                     std::numeric_limits<int32_t>::max(),
                                                     std::numeric_limits<int64_t>::min()};
    std::byte* const at = bytes.data() + random_() % (bytes.size() / sizeof(T)) * sizeof(T);
    const std::atomic_ref number(*reinterpret_cast<T*>(at));
    const T before = number.load();
    const int64_t other = random_() % 16 == 0 ? kInvalid[random_() % kInvalid.size()]
                                              : 1 + static_cast<int64_t>(random_() % 3);
    for (int i = 0; i < 16; ++i) number.store(static_cast<T>(other));
    number.store(before);
  }

  const ring::RingView view_;
  const ring::BatchLayout layout_;
  const std::vector<size_t> integers_;
  std::mt19937 random_{7};
  std::jthread thread_;
};

}  // namespace stoker::hostile
