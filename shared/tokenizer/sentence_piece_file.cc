// parse_sentence_piece_file: the protocol buffer of a SentencePiece model (sentencepiece_model.proto).
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>

#include "shared/base/protobuf_wire.h"
#include "shared/base/utf8.h"
#include "shared/tokenizer/sentence_piece.h"
#include "shared/tokenizer/tokenizer_model.h"

namespace stoker::tokenizer {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are read as they lie");

constexpr float kMaxScore = 1e30f;  // so that the sum of a text is finite

Status invalid_field(const std::string& what) { return Status(StatusCode::kCorrupt, what); }

struct WireField {
  uint64_t number = 0;
  uint64_t value = 0;      // of a varint, or of 4 or 8 bytes
  std::string_view bytes;  // length-delimited
};

// Calls `on_field` for each field of a message, until it returns an error.
template <typename OnField>
Status for_each_field(std::string_view message, const std::string& name, OnField on_field) {
  std::span<const std::byte> rest = std::as_bytes(std::span(message));
  while (!rest.empty()) {
    protobuf::FieldHead head;
    if (protobuf::take_head(rest, head) != nullptr || head.size > rest.size())
      return invalid_field(name + ": is not a valid message");
    WireField field{.number = head.number, .value = head.varint, .bytes = {}};
    if (head.type == protobuf::WireType::kBytes) {
      field.bytes = {reinterpret_cast<const char*>(rest.data()), head.size};
    } else if (head.size > 0) {
      std::memcpy(&field.value, rest.data(), head.size);
    }
    rest = rest.subspan(head.size);
    STOKER_RETURN_IF_ERROR(on_field(field));
  }
  return {};
}

Result<Piece> parse_piece(std::string_view message, size_t id) {
  const std::string name = "pieces[" + std::to_string(id) + "]";
  Piece piece;
  uint64_t type = static_cast<uint64_t>(PieceType::kNormal);
  STOKER_RETURN_IF_ERROR(for_each_field(message, name, [&](const WireField& field) {
    if (field.number == 1) piece.text = field.bytes;
    if (field.number == 2) piece.score = std::bit_cast<float>(static_cast<uint32_t>(field.value));
    if (field.number == 3) type = field.value;
    return Status();
  }));
  if (piece.text.empty() || piece.text.size() > kMaxTokenBytes ||
      piece.text.find('\0') != std::string::npos || valid_utf8(piece.text) != piece.text)
    return invalid_field(name + ".piece: must be text of 1 to " + std::to_string(kMaxTokenBytes) +
                         " bytes without a zero byte");
  if (!(std::abs(piece.score) <= kMaxScore))
    return invalid_field(name + ".score: must be a number from -1e30 to 1e30");
  if (type < static_cast<uint64_t>(PieceType::kNormal) ||
      type > static_cast<uint64_t>(PieceType::kByte))
    return Status(StatusCode::kMismatch,
                  name + ".type: " + std::to_string(type) + " is not supported; accepted: 1 to 6");
  piece.type = static_cast<PieceType>(type);
  return piece;
}

Status parse_trainer(std::string_view message, SentencePieceFile& file) {
  uint64_t algorithm = static_cast<uint64_t>(PieceAlgorithm::kUnigram);
  STOKER_RETURN_IF_ERROR(for_each_field(message, "trainer_spec", [&](const WireField& field) {
    if (field.number == 3) algorithm = field.value;
    if (field.number == 24) file.treat_whitespace_as_suffix = field.value != 0;
    if (field.number == 35) file.byte_fallback = field.value != 0;
    if (field.number == 44) file.unk_surface = field.bytes;
    return Status();
  }));
  if (file.unk_surface.size() > kMaxTokenBytes)
    return invalid_field("trainer_spec.unk_surface: has more than " +
                         std::to_string(kMaxTokenBytes) + " bytes");
  if (algorithm != static_cast<uint64_t>(PieceAlgorithm::kUnigram) &&
      algorithm != static_cast<uint64_t>(PieceAlgorithm::kBpe))
    return Status(StatusCode::kMismatch, "trainer_spec.model_type: " + std::to_string(algorithm) +
                                             " is not supported; accepted: 1 (unigram), 2 (bpe)");
  file.algorithm = static_cast<PieceAlgorithm>(algorithm);
  return {};
}

Status parse_normalizer(std::string_view message, SentencePieceFile& file) {
  STOKER_RETURN_IF_ERROR(for_each_field(message, "normalizer_spec", [&](const WireField& field) {
    if (field.number == 2) file.precompiled_charsmap = field.bytes;
    if (field.number == 3) file.add_dummy_prefix = field.value != 0;
    if (field.number == 4) file.remove_extra_whitespaces = field.value != 0;
    if (field.number == 5) file.escape_whitespaces = field.value != 0;
    return Status();
  }));
  if (!file.escape_whitespaces)
    return Status(StatusCode::kMismatch,
                  "normalizer_spec.escape_whitespaces: false is not supported; accepted: true");
  return {};
}

}  // namespace

Result<SentencePieceFile> parse_sentence_piece_file(std::string_view message) {
  SentencePieceFile file;
  STOKER_RETURN_IF_ERROR(for_each_field(message, "model", [&](const WireField& field) -> Status {
    if (field.number == 1) {
      if (file.pieces.size() == kMaxTokens)
        return invalid_field("pieces: has more than " + std::to_string(kMaxTokens) + " pieces");
      STOKER_ASSIGN_OR_RETURN(Piece piece, parse_piece(field.bytes, file.pieces.size()));
      file.pieces.push_back(std::move(piece));
    }
    if (field.number == 2) return parse_trainer(field.bytes, file);
    if (field.number == 3) return parse_normalizer(field.bytes, file);
    return {};
  }));
  return file;
}

Result<TokenizerModel> parse_sentence_piece(std::string_view message) {
  STOKER_ASSIGN_OR_RETURN(SentencePieceFile file, parse_sentence_piece_file(message));
  STOKER_ASSIGN_OR_RETURN(SentencePiece pieces, SentencePiece::create(std::move(file)));
  TokenizerModel model;
  model.tokens = pieces.token_texts();
  for (const std::string_view name : kEndTokens) {
    const auto found = std::ranges::find_if(pieces.pieces(), [&](const Piece& piece) {
      return piece.type == PieceType::kControl && piece.text == name;
    });
    if (found == pieces.pieces().end()) continue;
    model.end_token = static_cast<int32_t>(found - pieces.pieces().begin());
    break;
  }
  model.maybe_sentence_piece = std::move(pieces);
  return model;
}

}  // namespace stoker::tokenizer
