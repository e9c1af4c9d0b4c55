// Format: one format of files that strangers hand us, as fuzzing and the ordinary tests see it.
//
// To add one: a file NAME_format.cc beside idx_format.cc, a line in format.cc and in CMakeLists.txt.
// It then has a libFuzzer target fuzz_NAME, a corpus of seeds, and a test that runs the seeds, every
// damage to them, and whatever lies in regressions/NAME/ (inputs that once broke something).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace stoker::fuzz {

struct Format {
  std::string_view name;
  // Reads the input as a user's file would be read; true where it was accepted and at least one
  // sample could be read. Aborts where a promise is broken: dataset_under_test.h (data sets) and
  // file_under_test.h (weights, checkpoints) say which there are.
  bool (*run)(std::string_view input);
  // Small good inputs, each of which is accepted. Between them they show all that the format has.
  std::vector<std::string> (*seeds)();
};

std::span<const Format> formats();
const Format* find_format(std::string_view name);  // null: there is none

const Format& cifar_format();
const Format& csv_format();
const Format& idx_format();
const Format& jsonl_format();
const Format& list_format();
const Format& manifest_format();
const Format& npy_format();
const Format& pickle_format();
const Format& image_format();
const Format& safetensors_format();
const Format& tar_format();
const Format& text_format();
const Format& tfrecord_format();
const Format& tokens_format();
const Format& torch_format();

// An input that stands for several files: the first `files - 1` are preceded by their length, two
// bytes, little-endian; the last takes the rest. A length that is too large takes what there is.
std::vector<std::string_view> split_input(std::string_view input, size_t files);
std::string join_input(const std::vector<std::string>& files);  // each but the last below 64 KiB

}  // namespace stoker::fuzz
