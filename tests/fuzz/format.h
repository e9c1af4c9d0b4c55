// Format: a format of untrusted files, for fuzzing and for the ordinary tests.
//
// To add one, write NAME_format.cc like idx_format.cc and add a line to format.cc and
// CMakeLists.txt. This creates a libFuzzer target fuzz_NAME, a seed corpus, and a test that runs
// the seeds, systematic mutations of them, and the inputs in corpus/NAME/ (found by the target, for
// their coverage: `scripts/fuzz.sh --merge`) and regressions/NAME/ (inputs that once caused a
// failure). record_producers.py adds what real programs have exchanged to the corpus of `producer`.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace stoker::fuzz {

struct Format {
  std::string_view name;
  // Reads the input in the same way as a user's file; true if it was accepted and at least one
  // sample could be read. Aborts if an invariant of dataset_under_test.h (datasets) or
  // file_under_test.h (weights, checkpoints) is violated.
  bool (*run)(std::string_view input);
  // Small valid inputs, each of which is accepted. Together they cover all features of the format.
  std::vector<std::string> (*seeds)();
};

std::span<const Format> formats();
const Format* find_format(std::string_view name);  // nullptr: no such format

const Format& chat_format();
const Format& cifar_format();
const Format& csv_format();
const Format& graph_format();
const Format& huggingface_config_format();
const Format& idx_format();
const Format& jsonl_format();
const Format& list_format();
const Format& manifest_format();
const Format& npy_format();
const Format& pickle_format();
const Format& image_format();
const Format& producer_format();
const Format& safetensors_format();
const Format& safetensors_index_format();
const Format& stream_format();
const Format& tar_format();
const Format& text_format();
const Format& tfrecord_format();
const Format& tokenizer_format();
const Format& tokens_format();
const Format& torch_format();

// What run() does: checks the invariants, or, to measure its cost, only what a program does with
// such a file. Not for several threads.
enum class Work { kCheckInvariants, kReadOnce };
void set_work(Work work);
bool reads_once();

// Splits an input that represents several files. Each of the first `files - 1` is preceded by its
// length in two little-endian bytes; the last one is the rest. A length beyond the end is limited
// to the remaining bytes.
std::vector<std::string_view> split_input(std::string_view input, size_t files);
std::string join_input(const std::vector<std::string>& files);  // each but the last below 64 KiB

}  // namespace stoker::fuzz
