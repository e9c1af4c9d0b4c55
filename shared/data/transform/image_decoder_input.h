// ImageDecoderInput: decodes an encoded image into the tensor "input", with the settings that all
// formats with encoded images have in common.
//
// Threads: immutable after construction; read() may be called from any thread, concurrently. Each
//          thread keeps its own decoder and its memory.
// Errors:  of(): kInvalidArgument, naming the setting. read(): kCorrupt (invalid data, unknown
//          format, limits exceeded), kOutOfMemory; the caller adds the name of the file. The output
//          bytes are then unspecified.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "shared/base/status.h"
#include "shared/base/tensor_spec.h"
#include "shared/data/dataset_request.h"
#include "shared/data/transform/image_geometry.h"
#include "shared/image/decoder.h"
#include "shared/image/image_types.h"

namespace stoker::data::transform {

inline constexpr std::byte kIgnoredClass{255};  // of a pixel of a mask

class ImageDecoderInput {
 public:
  static Result<ImageDecoderInput> of(const DatasetRequest& request);

  // U8 [channels, height, width], named "input".
  TensorSpec spec() const;
  TensorSpec mask_spec() const;  // U8 [height, width], named "mask"
  std::string to_text() const;   // "size=32x32 channels=3"; for DatasetFormatOps::fingerprint_text
  // Decodes `file`, the bytes of a JPEG, PNG or WebP image, or a crop of it, into `input`, which
  // has the size of spec().
  Status read(std::span<const std::byte> file, const RandomKey& random_key,
              std::span<std::byte> input) const;
  // The same, and the same region of a mask of the image's size into `mask`. kCorrupt also if a class
  // is not below `classes` and not kIgnoredClass.
  Status read_with_mask(std::span<const std::byte> file, std::span<const std::byte> mask_file,
                        uint64_t classes, const RandomKey& random_key, std::span<std::byte> input,
                        std::span<std::byte> mask) const;
  // The region of a random crop, for SampleFiles::describe_transforms(): "crop=12,40,180x200" (left,
  // top, width, height, in pixels of the encoded image). Decodes the image.
  std::string describe_transforms(std::span<const std::byte> file,
                                  const RandomKey& random_key) const;

 private:
  ImageDecoderInput(const DatasetRequest& request, const image::ImageShape& shape,
                    const CropResize& crop, const image::DecodeLimits& limits);

  // Counts an image that is not upright, and logs the count from time to time.
  image::DecodeOptions options_for(std::span<const std::byte> file) const;

  std::string dataset_;
  image::ImageShape shape_;
  CropResize crop_;
  image::DecodeLimits limits_;
  bool applies_exif_orientation_;
  std::shared_ptr<std::atomic<uint64_t>> oriented_;  // images of this process; shared by copies
};

}  // namespace stoker::data::transform
