#include "tests/fuzz/worst_inputs.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <set>
#include <variant>

#include "shared/base/json_parser.h"
#include "shared/checkpoint/safetensors.h"
#include "shared/checkpoint/verify.h"
#include "shared/config/huggingface_config.h"
#include "shared/config/load_config.h"
#include "shared/control/protocol.h"
#include "shared/data/files/decompressed_file.h"
#include "shared/graph/graph_file.h"
#include "shared/run/eval_result.h"
#include "shared/tokenizer/tokenizer.h"
#include "tests/fuzz/format.h"
#include "tests/fuzz/heap_meter.h"
#include "tests/shared/data/example_writer.h"
#include "tests/shared/data/tar_writer.h"
#include "tests/shared/image/image_files.h"
#include "tests/support/numpy_files.h"
#include "tests/support/packed_bytes.h"
#include "tests/support/tokenizer_files.h"
#include "tests/support/torch_files.h"

namespace stoker::fuzz {
namespace {

using namespace test::torch_files;

bool run_config(std::string_view input) {
  return config::parse_config(input, "config.yaml", {}).ok();
}
// What the files of a run and of checkpoints are read with; the largest are results.
bool run_json(std::string_view input) {
  boost::system::error_code error;
  (void)parse_json(input, error);
  return !error;
}
bool run_request(std::string_view input) {
  return std::holds_alternative<control::Request>(control::parse_request(input));
}

// Limits of the programs' readers. The files of a dataset have none.
size_t max_bytes_of(std::string_view format) {
  if (format == "graph") return graph::kMaxGraphBytes;
  if (format == "huggingface_config") return config::kMaxHuggingFaceConfigBytes;
  if (format == "manifest") return checkpoint::kMaxManifestBytes;
  if (format == "pickle" || format == "torch") return size_t{64} << 20;
  if (format == "safetensors") return checkpoint::kMaxHeaderBytes + sizeof(uint64_t);
  if (format == "tokenizer") return tokenizer::kMaxFileBytes;
  return 0;
}

// Heap bytes per byte of input, beyond kFixedBytes; docs/security.md has the same numbers.
uint64_t max_heap_factor_of(std::string_view format) {
  if (format == "cifar") return 0;   // run() makes a record of each byte
  if (format == "image") return 0;   // limited by DecodeLimits
  if (format == "stream") return 0;  // limited by kMaxRecordBytes
  return 100;
}
// Bytes that are written per byte of input: decompressed arrays.
uint64_t max_written_factor_of(std::string_view format) {
  return format == "npy" || format == "idx" ? data::files::kMaxExpansion : 1;
}

// `head`, `unit` as often as it fits, and `tail`.
std::string repeated(size_t bytes, const std::string& head, const std::string& unit,
                     const std::string& tail) {
  std::string text = head;
  text.reserve(bytes + unit.size());
  while (text.size() + unit.size() + tail.size() <= bytes) text += unit;
  return text + tail;
}

// The same with a number in each unit.
template <typename Unit>
std::string counted(size_t bytes, const std::string& head, const Unit& unit,
                    const std::string& tail) {
  std::string text = head;
  for (size_t i = 0; text.size() + tail.size() < bytes; ++i) text += unit(i);
  return text + tail;
}

std::string hex(size_t number) {
  char text[20];
  std::snprintf(text, sizeof text, "%zx", number);
  return text;
}

std::string safetensors(const std::string& header) {
  return test::little_endian(header.size(), sizeof(uint64_t)) + header;
}

void add_safetensors(std::vector<WorstInput>& inputs) {
  static const std::string kEmpty = R"({"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  inputs.push_back({"safetensors", "one tensor of many dimensions", [](size_t bytes) {
                      return safetensors(repeated(bytes - 8, R"({"a":{"dtype":"U8","shape":[0)",
                                                  ",1", R"(],"data_offsets":[0,0]}})"));
                    }});
  inputs.push_back({"safetensors", "empty tensors", [](size_t bytes) {
                      const auto unit = [](size_t i) { return ",\"" + hex(i) + "\":" + kEmpty; };
                      return safetensors(counted(bytes - 8, R"({"_":)" + kEmpty, unit, "}"));
                    }});
  inputs.push_back({"safetensors", "metadata of empty strings", [](size_t bytes) {
                      const auto unit = [](size_t i) { return ",\"" + hex(i) + "\":\"\""; };
                      return safetensors(
                          counted(bytes - 8, R"({"__metadata__":{"_":"")", unit, "}}"));
                    }});
  inputs.push_back({"safetensors", "one name", [](size_t bytes) {
                      return safetensors(repeated(bytes - 8, "{\"", "a", "\":{}}"));
                    }});
}

// A program for the stack machine, alone and in an archive.
void add_pickle(const std::string& what, const std::function<std::string(size_t bytes)>& make,
                std::vector<WorstInput>& inputs) {
  inputs.push_back({"pickle", what, make});
  inputs.push_back({"torch", what, [make](size_t bytes) { return torch_file(make(bytes), {}); }});
}

void add_pickles(std::vector<WorstInput>& inputs) {
  static const std::string kStart = "\x80\2", kZero(1, '\0'), kOne = "\1";
  const auto repeat = [&](const std::string& what, const std::string& head, const std::string& unit,
                          const std::string& tail) {
    add_pickle(
        what, [=](size_t bytes) { return repeated(bytes, kStart + head, unit, tail); }, inputs);
  };
  repeat("empty tuples", "", ")", ".");
  repeat("tuples of one value", "N", "\x85", ".");
  repeat("nested marks", "", "(", ".");
  repeat("references to one value", "]q" + kZero + "(", "h" + kZero, "e.");
  repeat("dicts", name("collections", "OrderedDict") + "q" + kOne, "h" + kOne + ")R", ".");
  repeat("keys that are no tensors", "}q" + kZero + text(std::string(100, 'k')) + "q" + kOne + "(",
         "h" + kOne + "h" + kOne, "u.");
  std::string shape;
  for (int i = 0; i < 64; ++i) shape += "K\1";
  const std::string storage_id =
      "(" + text("storage") + name("torch", "ByteStorage") + text("0") + text("cpu") + "K\1t";
  repeat("storages", storage_id + "q" + kZero, "h" + kZero + "Q", ".");
  repeat("tensors of 64 dimensions",
         name("torch._utils", "_rebuild_tensor") + "q" + kZero + "(" + storage_id + "QK" + kZero +
             "(" + shape + "tq\2h\2tq" + kOne,
         "h" + kZero + "h" + kOne + "R", ".");
  add_pickle(
      "memo",
      [](size_t bytes) {
        const auto unit = [](size_t i) { return "r" + test::little_endian(i, 4); };
        return counted(bytes, kStart + "N", unit, ".");
      },
      inputs);
  inputs.push_back(
      {"torch", "as many members as are read", [](size_t bytes) {
         constexpr size_t kMembers = 249'999;
         const size_t count = std::min<size_t>(kMembers, bytes / 400);
         const std::string name(bytes / count / 2 - 60, 'n');
         std::vector<std::pair<std::string, std::string>> members{{"a/data.pkl", "\x80\2}."}};
         for (size_t i = 0; i < count; ++i) members.emplace_back("a/" + name + hex(i), "");
         return test::zip64(members);
       }});
  inputs.push_back({"torch", "members of the archive", [](size_t bytes) {
                      std::vector<std::pair<std::string, std::string>> members{{"a/data.pkl", ""}};
                      for (size_t i = 0; i < bytes / 160; ++i)
                        members.emplace_back("a/" + hex(i), "");
                      return test::zip64(members);
                    }});
}

// JSON with many values and few bytes, between `head` and `tail`.
void add_json(std::string_view parser, const std::string& head, const std::string& tail,
              std::vector<WorstInput>& inputs) {
  const auto repeat = [&](const std::string& what, const std::string& first,
                          const std::string& unit, const std::string& last) {
    inputs.push_back({parser, what, [=](size_t bytes) {
                        return repeated(bytes, head + first, unit, last + tail);
                      }});
  };
  repeat("JSON array of numbers", "[0", ",0", "]");
  repeat("JSON array of arrays", "[[0]", ",[0]", "]");
  repeat("JSON array of objects", R"([{"a":0})", R"(,{"a":0})", "]");
  inputs.push_back({parser, "JSON object", [=](size_t bytes) {
                      const auto unit = [](size_t i) { return ",\"" + hex(i) + "\":0"; };
                      return counted(bytes, head + R"({"a":0)", unit, "}" + tail);
                    }});
}

void add_tokenizers(std::vector<WorstInput>& inputs) {
  const std::string no_text = join_input({"", ""});
  add_json("tokenizer", no_text + R"({"model":)", "}", inputs);
  inputs.push_back({"tokenizer", "vocabulary", [=](size_t bytes) {
                      const auto unit = [](size_t i) {
                        return ",\"" + hex(i + 4096) + "\":" + std::to_string(i + 1);
                      };
                      return counted(
                          bytes, no_text + R"({"model":{"type":"BPE","merges":[],"vocab":{"a":0)",
                          unit, "}}}");
                    }});
  // Words of 20 bytes are not stored within a string.
  inputs.push_back({"tokenizer", "words of WordPiece", [=](size_t bytes) {
                      const auto unit = [](size_t i) {
                        const std::string digits = hex((size_t{1} << 60) + i);
                        return ",\"##xx" + digits + "\":" + std::to_string(i + 1);
                      };
                      return counted(
                          bytes,
                          no_text + R"({"normalizer":{"type":"BertNormalizer"},)"
                                    R"("pre_tokenizer":{"type":"BertPreTokenizer"},)"
                                    R"("model":{"type":"WordPiece","unk_token":"a","vocab":{"a":0)",
                          unit, "}}}");
                    }});
  // Of tokens of 16 bytes, which are merged from bytes themselves.
  inputs.push_back({"tokenizer", "merges", [=](size_t bytes) {
                      constexpr size_t kSides = 1024;
                      test::TokenizerFile file;
                      const auto side = [](char first, size_t i) {
                        const std::string digits = hex(i);
                        return first + std::string(15 - digits.size(), '0') + digits;
                      };
                      std::set<std::string> known;
                      for (const char first : {'A', 'B'})
                        for (size_t i = 0; i < kSides; ++i) {
                          const std::string token = side(first, i);
                          for (size_t length = 2; length <= token.size(); ++length)
                            if (known.insert(token.substr(0, length)).second)
                              file.merges.emplace_back(token.substr(0, length - 1),
                                                       token.substr(length - 1, 1));
                        }
                      for (size_t i = 0; i < kSides * kSides && i * 86 + 150'000 < bytes; ++i)
                        file.merges.emplace_back(side('A', i % kSides), side('B', i / kSides));
                      return no_text + test::to_json(file);
                    }});
  inputs.push_back({"tokenizer", "added tokens", [=](size_t bytes) {
                      test::TokenizerFile file;
                      file.added_tokens.clear();
                      for (size_t i = 0; i * 140 < bytes; ++i)
                        file.added_tokens.push_back(hex((size_t{1} << 60) + i));
                      return no_text + test::to_json(file);
                    }});
  // Compared with each position of a text of 64 KiB, in which none is found.
  inputs.push_back({"tokenizer", "added tokens of each length", [](size_t) {
                      test::TokenizerFile file;
                      file.added_tokens.clear();
                      for (size_t length = 1; length < 256; ++length)
                        file.added_tokens.push_back(std::string(length, 'a') + 'b');
                      return join_input({std::string(65'535, 'a'), test::to_json(file)});
                    }});
  inputs.push_back({"tokenizer", "text of single letters of WordPiece", [](size_t) {
                      test::WordPieceFile file;
                      file.words = {"a", "##a", std::string(256, 'b')};
                      file.model_fields = R"(, "max_input_chars_per_word": 256)";
                      std::string text;
                      while (text.size() + 257 < 65'535) text += std::string(256, 'a') + ' ';
                      return join_input({text, test::to_json(file)});
                    }});
  // Different from their start on, so that each byte is a node.
  inputs.push_back({"tokenizer", "long pieces of SentencePiece", [=](size_t bytes) {
                      const auto unit = [](size_t i) {
                        std::string start = hex(i);
                        std::ranges::reverse(start);
                        return test::piece_field(start + std::string(256 - start.size(), 'x'), 0);
                      };
                      return counted(bytes, no_text + test::piece_field("<unk>", 0, 2), unit, "");
                    }});
  inputs.push_back({"tokenizer", "pieces of SentencePiece", [=](size_t bytes) {
                      const auto unit = [](size_t i) { return test::piece_field(hex(i), 0); };
                      return counted(bytes, no_text + test::piece_field("<unk>", 0, 2), unit, "");
                    }});
}

void add_yaml(std::vector<WorstInput>& inputs) {
  const auto repeat = [&](const std::string& what, const std::string& head, const std::string& unit,
                          const std::string& tail) {
    inputs.push_back(
        {"config", what, [=](size_t bytes) { return repeated(bytes, head, unit, tail); }});
  };
  repeat("list of numbers", "a: [0", ",0", "]");
  repeat("list of empty lists", "a: [[]", ",[]", "]");
  repeat("anchors and aliases", "a: &a [b, b]\n", "b: &b [*a, *a]\n", "");
  repeat("nested lists", "a: ", "[", "");
  repeat("nested block lists", "a:\n ", "- ", "");
  inputs.push_back({"config", "unknown keys", [](size_t bytes) {
                      return counted(
                          bytes, "", [](size_t i) { return "k" + hex(i) + ":\n"; }, "");
                    }});
}

void add_tables(std::vector<WorstInput>& inputs) {
  static const std::string kPlain(1, '\0');  // the settings of these formats
  const auto repeat = [&](std::string_view parser, const std::string& what, const std::string& head,
                          const std::string& unit, const std::string& tail) {
    inputs.push_back(
        {parser, what, [=](size_t bytes) { return repeated(bytes, head, unit, tail); }});
  };
  repeat("csv", "rows of one class", kPlain + "a,y\n", "1,0\n", "");
  repeat("csv", "empty rows", kPlain + "y\n", "\n", "");
  inputs.push_back({"csv", "rows of different classes", [](size_t bytes) {
                      const auto unit = [](size_t i) { return "1,c" + hex(i) + "\n"; };
                      return counted(bytes, kPlain + "a,y\n", unit, "");
                    }});
  inputs.push_back({"csv", "columns", [](size_t bytes) {
                      const auto unit = [](size_t i) { return "," + hex(i); };
                      return counted(bytes / 2, kPlain + "y", unit, "\n") +
                             repeated(bytes / 2, "0", ",1", "\n");
                    }});
  repeat("jsonl", "texts", "\2", "{\"t\":\"a\"}\n", "");
  repeat("jsonl", "empty lines", "\2", "\n", "");
  repeat("jsonl", "a line of numbers", kPlain + "{\"y\":0,\"a\":[0", ",0", "]}\n");
  repeat("jsonl", "a line of arrays", kPlain + "{\"y\":0,\"z\":[[]", ",[]", "]}\n");
  repeat("chat", "empty conversations", kPlain, "{\"m\":[]}\n", "");
  repeat("chat", "a long conversation", kPlain + "{\"m\":[{\"role\":\"user\",\"content\":\"\"}",
         ",{\"role\":\"assistant\",\"content\":\"\"},{\"role\":\"user\",\"content\":\"\"}", "]}\n");
  repeat("list", "paths", kPlain + "path,label\n", "a,0\n", "");
  inputs.push_back({"list", "different classes", [](size_t bytes) {
                      const auto unit = [](size_t i) { return "a,c" + hex(i) + "\n"; };
                      return counted(bytes, kPlain + "path,label\n", unit, "");
                    }});
}

void add_records(std::vector<WorstInput>& inputs) {
  using namespace data::testing;
  inputs.push_back({"text", "bytes", [](size_t bytes) {
                      return '\1' + join_input({"", std::string(bytes, 'a')});
                    }});
  inputs.push_back({"tokens", "blocks of one token",
                    [](size_t bytes) { return '\1' + std::string(bytes, '\1'); }});
  inputs.push_back({"tfrecord", "frames without data",
                    [](size_t bytes) { return repeated(bytes, "\4", framed(""), ""); }});
  inputs.push_back(
      {"tfrecord", "frames", [](size_t bytes) {
         const auto fields = example({{"x", bytes_feature("ab")}, {"y", ints_feature({1})}});
         return repeated(bytes, "\4", framed(fields), "");
       }});
  inputs.push_back({"tar", "members", [](size_t bytes) {
                      const auto unit = [](size_t i) {
                        return tar_member(hex(i) + ".x", "ab") + tar_member(hex(i) + ".cls", "1");
                      };
                      return counted(bytes, "\4", unit, kTarEnd);
                    }});
  inputs.push_back({"tar", "members without data", [](size_t bytes) {
                      const auto unit = [](size_t i) { return tar_member(hex(i) + ".x", ""); };
                      return counted(bytes, "\4", unit, kTarEnd);
                    }});
  inputs.push_back(
      {"stream", "empty lines", [](size_t bytes) { return '\2' + std::string(bytes, '\n'); }});
}

// Data that shrinks to a thousandth; generating it takes the memory that reading it should not.
constexpr size_t kMaxPacked = size_t{1} << 17;
std::string zeros(size_t bytes) { return std::string(std::min(bytes, kMaxPacked) * 900, '\0'); }

void add_packed(std::vector<WorstInput>& inputs) {
  inputs.push_back(
      {"npy", "zeros", [](size_t bytes) {
         const std::string data = zeros(bytes / 2);
         const std::string array = test::npy("|u1", "(" + std::to_string(data.size()) + ",)", data);
         return join_input({"", test::zip({{"x.npy", array}, {"y.npy", array}}, true)});
       }});
  inputs.push_back({"npy", "members", [](size_t bytes) {
                      std::vector<std::pair<std::string, std::string>> members;
                      for (size_t i = 0; i < bytes / 160; ++i) members.emplace_back(hex(i), "");
                      return join_input({"", test::zip64(members)});
                    }});
  inputs.push_back({"idx", "zeros", [](size_t bytes) {
                      const std::string data = zeros(bytes);
                      const auto rows = static_cast<uint32_t>(data.size() / 256);
                      const std::string label = test::big_endian(0x801) + test::big_endian(1);
                      return join_input(
                          {label + '\1', test::gzip(test::big_endian(0x803) + test::big_endian(1) +
                                                    test::big_endian(rows) + test::big_endian(256) +
                                                    data.substr(0, size_t{rows} * 256))});
                    }});
  inputs.push_back(
      {"stream", "zeros in gzip", [](size_t bytes) { return '\5' + test::gzip(zeros(bytes)); }});
  inputs.push_back(
      {"stream", "zeros in zstd", [](size_t bytes) { return '\6' + test::zstd(zeros(bytes)); }});
}

// Of one color, so that they are small.
image::testing::Pixels black(size_t bytes) {
  const auto side = static_cast<uint32_t>(std::min<size_t>(bytes / 8, 9000));
  return {.height = side,
          .width = side,
          .channels = 1,
          .samples = std::vector<uint8_t>(size_t{side} * side)};
}

void add_images(std::vector<WorstInput>& inputs) {
  static const std::string kComplete(4, '\0');  // no crop
  inputs.push_back({"image", "PNG", [](size_t bytes) {
                      return kComplete +
                             image::testing::encode_png_file(black(bytes), {.color_type = 0});
                    }});
  inputs.push_back({"image", "interlaced PNG", [](size_t bytes) {
                      return kComplete + image::testing::encode_png_file(
                                             black(bytes), {.color_type = 0, .interlaced = true});
                    }});
  inputs.push_back({"image", "progressive JPEG", [](size_t bytes) {
                      return kComplete +
                             image::testing::encode_jpeg(black(bytes), {.progressive = true});
                    }});
}

}  // namespace

const std::vector<Parser>& parsers() {
  static const std::vector<Parser> kParsers = [] {
    std::vector<Parser> all;
    for (const Format& format : formats())
      all.push_back({format.name, format.run, max_bytes_of(format.name)});
    all.push_back({"config", run_config, size_t{1} << 20});
    all.push_back({"request", run_request, control::kMaxLineBytes});
    all.push_back({"json", run_json, run::kMaxEvalResultBytes});
    for (Parser& parser : all) {
      parser.max_heap_factor = max_heap_factor_of(parser.name);
      parser.max_written_factor = max_written_factor_of(parser.name);
    }
    return all;
  }();
  return kParsers;
}

const std::vector<WorstInput>& worst_inputs() {
  static const std::vector<WorstInput> kInputs = [] {
    std::vector<WorstInput> inputs;
    add_safetensors(inputs);
    add_pickles(inputs);
    for (const std::string_view parser : {"graph", "huggingface_config", "request", "json"})
      add_json(parser, "", "", inputs);
    add_tokenizers(inputs);
    add_yaml(inputs);
    add_tables(inputs);
    add_records(inputs);
    add_packed(inputs);
    add_images(inputs);
    return inputs;
  }();
  return kInputs;
}

namespace {

uint64_t bytes_written() {
  std::ifstream io("/proc/self/io");
  for (std::string word; io >> word;) {
    uint64_t bytes = 0;
    if (word == "wchar:" && io >> bytes) return bytes;
  }
  return 0;
}

double thread_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

Cost measure(const Parser& parser, std::string_view input) {
  const uint64_t written = bytes_written();
  const double start = thread_seconds();
  reset_heap_meter();
  (void)parser.run(input);
  Cost cost;
  const HeapUse heap = read_heap_meter();
  cost.seconds = thread_seconds() - start;
  cost.heap_bytes = heap.bytes;
  cost.blocks = heap.blocks;
  const uint64_t all = bytes_written() - written;
  cost.written_bytes = all - std::min<uint64_t>(all, input.size());
  return cost;
}

}  // namespace stoker::fuzz
