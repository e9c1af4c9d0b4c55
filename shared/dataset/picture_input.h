// PictureInput: how a set turns an encoded picture into its tensor "input": the settings that every
// format with pictures reads.
//
// Threads: immutable after construction; read() may be called from any thread, concurrently. Each
//          thread keeps a decoder with its memory.
// Errors:  of(): kInvalidArgument, naming the setting. read(): kCorrupt (damaged, of another
//          format, past the limits), kOutOfMemory; the caller adds which file it was. The output
//          bytes are then unspecified.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "shared/base/status.h"
#include "shared/base/tensor_spec.h"
#include "shared/dataset/crop_rule.h"
#include "shared/dataset/kind.h"
#include "shared/image/picture.h"

namespace stoker::dataset {

class PictureInput {
 public:
  static Result<PictureInput> of(const SetRequest& set);

  // U8 [channels, height, width], named "input".
  TensorSpec spec() const;
  std::string to_text() const;  // "size=32x32 channels=3"; for Kind::settings
  // Decodes `file`, the bytes of a JPEG, PNG or WebP, or a part of it, into `input`: spec()'s bytes.
  Status read(std::span<const std::byte> file, const DrawKey& draw,
              std::span<std::byte> input) const;
  // Which part of the picture read() takes where that is drawn, for Dataset::describe_draws():
  // "crop=12,40,180x200" (left, top, width, height, in its pixels). Decodes it.
  std::string describe_draws(std::span<const std::byte> file, const DrawKey& draw) const;

 private:
  PictureInput(const image::PictureShape& shape, const CropRule& crop)
      : shape_(shape), crop_(crop) {}

  image::PictureShape shape_;
  CropRule crop_;
};

}  // namespace stoker::dataset
