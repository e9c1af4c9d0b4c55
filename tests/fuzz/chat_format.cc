#include <array>
#include <utility>

#include "tests/fuzz/dataset_under_test.h"
#include "tests/fuzz/format.h"
#include "tests/support/tokenizer_files.h"

namespace stoker::fuzz {
namespace {

constexpr unsigned kTemplates = 3, kTruncates = 4, kSkips = 8, kPacks = 16;

// A tokenizer that normalizes, with the special tokens of all templates.
std::string chat_tokenizer() {
  test::TokenizerFile file = test::small_tokenizer();
  file.normalizer = R"({"type": "NFC"})";
  for (const char* const token :
       {"<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|start_header_id|>",
        "<|end_header_id|>", "<|eot_id|>", "<s>", "</s>", "[INST]", "[/INST]"})
    file.added_tokens.emplace_back(token);
  return test::to_json(file);
}

// The first byte selects the template and the settings; the rest is a file of conversations.
bool run(std::string_view input) {
  static DatasetUnderTest set;
  static const bool is_written = (set.write("t.json", chat_tokenizer()), true);
  if (input.empty() || !is_written) return false;
  const unsigned settings = static_cast<unsigned char>(input[0]);
  set.write("chats", input.substr(1));
  constexpr std::array kAll{config::ChatTemplate::kChatml, config::ChatTemplate::kLlama3,
                            config::ChatTemplate::kMistral};
  config::JsonlDataset config;
  config.path = set.path("chats");
  config.record.fields.messages = "m";
  config.record.tokenizer = config::TokenizerConfig{
      .path = set.path("t.json"), .chat_template = kAll[(settings & kTemplates) % kAll.size()]};
  config.record.sequence.max_length = 40;
  config.record.sequence.packing = (settings & kPacks) != 0;
  if ((settings & kTruncates) != 0)
    config.record.sequence.on_overflow = config::OnOverflow::kTruncate;
  if ((settings & kSkips) != 0) {
    config.record.on_missing_field = config::OnMissingField::kDrop;
    config.record.sequence.on_overflow = config::OnOverflow::kDrop;
  }
  return set.check({.source = config});
}

std::string seed(unsigned settings, const std::string& lines) {
  return static_cast<char>(settings) + lines;
}

}  // namespace

const Format& chat_format() {
  static constexpr Format kFormat{
      .name = "chat", .run = run, .seeds = [] {
        const std::string chat =
            "{\"m\": [{\"role\": \"user\", \"content\": \" to\\u0301 \\n\"}, "
            "{\"content\": \"be\\u00fc\", \"name\": null, \"role\": \"assistant\"}]}\n";
        const std::string system =
            "{\"m\": [{\"role\": \"system\", \"content\": \"to be\"}, {\"role\": \"user\", "
            "\"content\": \"\"}, {\"role\": \"assistant\", \"content\": \"\"}, {\"role\": "
            "\"user\", \"content\": \"be\"}], \"x\": 3}\n";
        const std::string question = "{\"m\": [{\"role\": \"user\", \"content\": \"to\"}]}\n";
        return std::vector<std::string>{seed(0, chat + chat), seed(1 | kTruncates, system + chat),
                                        seed(2, chat + system),
                                        seed(2 | kSkips, question + "{\"m\": null}\n{}\n" + chat),
                                        seed(kPacks | kTruncates, chat + chat + system)};
      }};
  return kFormat;
}

}  // namespace stoker::fuzz
