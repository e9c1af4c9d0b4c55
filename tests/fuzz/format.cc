#include "tests/fuzz/format.h"

#include <algorithm>
#include <array>
#include <cassert>

namespace stoker::fuzz {

std::span<const Format> formats() {
  static const std::array kFormats{chat_format(),
                                   cifar_format(),
                                   csv_format(),
                                   graph_format(),
                                   huggingface_config_format(),
                                   idx_format(),
                                   jsonl_format(),
                                   list_format(),
                                   manifest_format(),
                                   npy_format(),
                                   pickle_format(),
                                   image_format(),
                                   producer_format(),
                                   safetensors_format(),
                                   safetensors_index_format(),
                                   stream_format(),
                                   tar_format(),
                                   text_format(),
                                   tfrecord_format(),
                                   tokenizer_format(),
                                   tokens_format(),
                                   torch_format()};
  return kFormats;
}

const Format* find_format(std::string_view name) {
  const auto found = std::ranges::find(formats(), name, &Format::name);
  return found == formats().end() ? nullptr : &*found;
}

namespace {

Work current_work = Work::kCheckInvariants;

}  // namespace

void set_work(Work work) { current_work = work; }
bool reads_once() { return current_work == Work::kReadOnce; }

std::vector<std::string_view> split_input(std::string_view input, size_t files) {
  std::vector<std::string_view> parts;
  while (parts.size() + 1 < files) {
    size_t length = 0;
    const size_t digits = std::min<size_t>(input.size(), 2);
    for (size_t i = 0; i < digits; ++i)
      length |= size_t{static_cast<unsigned char>(input[i])} << (8 * i);
    input.remove_prefix(digits);
    parts.push_back(input.substr(0, length));
    input.remove_prefix(parts.back().size());
  }
  parts.push_back(input);
  return parts;
}

std::string join_input(const std::vector<std::string>& files) {
  std::string input;
  for (const std::string& file : files) {
    if (&file != &files.back()) {
      assert(file.size() < 65536);
      input += static_cast<char>(file.size());
      input += static_cast<char>(file.size() >> 8);
    }
    input += file;
  }
  return input;
}

}  // namespace stoker::fuzz
