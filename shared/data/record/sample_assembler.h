// SampleAssembler: converts the values of a record to the tensors of a sample according to a
// SampleSpec. Decodes images, converts numbers and pads sequences.
//
// Threads: immutable after construction; any.
// Errors:  kCorrupt, kOutOfMemory, with the field; the caller adds the record. The outputs are then
//          unspecified.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "shared/base/status.h"
#include "shared/data/dataset.h"
#include "shared/data/record/chat_messages.h"
#include "shared/data/record/field_value.h"
#include "shared/data/record/sample_spec.h"
#include "shared/data/sandbox.h"

namespace stoker::data::record {

class SampleAssembler {
 public:
  explicit SampleAssembler(SampleSpec spec) : spec_(std::move(spec)) {}

  const SampleSpec& spec() const { return spec_; }

  // `outputs`: the tensors of spec().tensors() for the maximum length, or for a length not below
  // that of the record. Not for text streams.
  Status assemble(const RecordValues& record, const RandomKey& random_key,
                  std::span<const std::span<std::byte>> outputs) const;
  // The random parameters that assemble() uses, for SampleFiles::describe_transforms().
  std::string describe_transforms(std::span<const FieldValue> values,
                                  const RandomKey& random_key) const;

  // For indexing: the form of an input whose first record has this value, and the length of a
  // sequence. kCorrupt if the settings do not allow it.
  Result<InputForm> input_form(const FieldValue& input) const;
  struct Measure {
    uint64_t length = 0;    // before truncation
    uint64_t labels = 0;    // number of labels
    uint64_t classes = 0;   // largest label plus 1
    bool has_reply = true;  // of messages: within max_length
  };
  // What is more than allowed; nullopt: nothing. Only steps can be truncated.
  struct Excess {
    std::string what;  // "has 7 time steps"
    const char* key;   // the setting: "sequence.max_length"
    uint64_t limit = 0;
    bool is_of_steps = false;
  };
  std::optional<Excess> find_excess(const Measure& measure) const;
  // `maybe_tokenizer`: encodes texts, as the spec's tokenizer does. Null: that one.
  Result<Measure> measure(std::span<const FieldValue> values,
                          TextTokenizer* maybe_tokenizer = nullptr) const;

 private:
  // `first`: index of the value in the record.
  Status write_other(std::span<const FieldValue> value, size_t first,
                     std::span<std::byte> out) const;
  Status write_padded(const FieldValue& value, const FieldSpec& field,
                      std::span<std::byte> out) const;
  Status write_target(const RecordValues& record, uint64_t steps,
                      std::span<const std::span<std::byte>> outputs) const;
  Status write_image_with_mask(const RecordValues& record, const RandomKey& random_key,
                               std::span<const std::span<std::byte>> outputs) const;
  Status write_input(std::span<const FieldValue> values, const RandomKey& random_key,
                     std::span<std::byte> out) const;
  Status write_bytes(std::span<const FieldValue> values, std::span<std::byte> out) const;
  // `first`: index of values[0] in the record.
  Status write_numbers(std::span<const FieldValue> values, size_t first,
                       std::span<std::byte> out) const;
  Result<uint64_t> num_steps(const FieldValue& value) const;
  Status write_sequence(const RecordValues& record, uint64_t& kept,
                        std::span<const std::span<std::byte>> outputs) const;
  // Sets length and has_reply. `maybe_tokenizer`: of another process.
  Status measure_text(const FieldValue& value, TextTokenizer* maybe_tokenizer,
                      Measure& measure) const;
  // Of a text or of messages, in thread-local memory that is valid until the thread's next call.
  struct Tokens {
    std::span<const int32_t> ids;
    std::span<const ChatText::Range> replies;  // of messages, in bytes
  };
  Result<Tokens> tokens_of(const FieldValue& value) const;
  enum class Normalization { kNone, kOfTokenizer };
  Result<ChatText> chat_text_of(const FieldValue& value, Normalization normalization) const;
  // Whether one of these tokens, the first ones of a conversation, is of a reply.
  bool have_reply(std::span<const int32_t> ids, std::span<const ChatText::Range> replies) const;
  // `labels`: -100, but the tokens of the replies.
  void write_replies(const Tokens& tokens, uint64_t kept, std::span<std::byte> labels) const;
  Status write_steps(const FieldValue& value, uint64_t kept, std::span<std::byte> out) const;
  Status write_labels(const FieldValue& value, uint64_t steps, std::span<std::byte> out) const;
  Status write_captions(const FieldValue& value, std::span<std::byte> labels,
                        std::span<std::byte> references) const;

  const SampleSpec spec_;
};

}  // namespace stoker::data::record
