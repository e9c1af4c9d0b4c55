#include "shared/image/libjpeg.h"

#include <jerror.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>

// Message codes of libjpeg; must follow jpeglib.h.

namespace stoker::image {
namespace {

// Warnings that do not affect pixels.
bool is_harmless(int code) {
  return code == JWRN_EXTRANEOUS_DATA || code == JWRN_ADOBE_XFORM || code == JWRN_JFIF_MAJOR;
}

}  // namespace

JpegErrorHandler::JpegErrorHandler(const DecodeLimits& limits) : limits_(limits) {
  jpeg_std_error(&errors_);
  errors_.error_exit = [](j_common_ptr info) { of(info).fail(info); };
  errors_.emit_message = [](j_common_ptr info, int level) {
    if (level < 0 && !is_harmless(info->err->msg_code)) of(info).fail(info);
  };
  errors_.output_message = [](j_common_ptr) {};
  progress_.progress_monitor = [](j_common_ptr info) {
    of(info).check_scans(*reinterpret_cast<j_decompress_ptr>(info));
  };
}

void JpegErrorHandler::watch_creation(j_common_ptr info) {
  info->err = &errors_;
  info->client_data = this;
}

void JpegErrorHandler::watch(jpeg_decompress_struct& info) {
  info.client_data = this;
  info.progress = &progress_;
  constexpr uint64_t kMaxMemory = std::numeric_limits<long>::max();
  info.mem->max_memory_to_use = static_cast<long>(std::min(limits_.memory_bytes, kMaxMemory));
}

Status JpegErrorHandler::error() const {
  const bool memory = errors_.msg_code == JERR_OUT_OF_MEMORY && !past_memory_limit_;
  return Status(memory ? StatusCode::kOutOfMemory : StatusCode::kCorrupt,
                std::string("JPEG: ") + message_);
}

void JpegErrorHandler::fail(j_common_ptr info) {
  if (errors_.msg_code == JERR_NO_BACKING_STORE) {
    past_memory_limit_ = true;
    std::snprintf(message_, sizeof message_, "needs more than %llu bytes of memory to decode",
                  static_cast<unsigned long long>(limits_.memory_bytes));
  } else {
    errors_.format_message(info, message_);
  }
  std::longjmp(jump_buffer, 1);
}

void JpegErrorHandler::check_scans(const jpeg_decompress_struct& info) {
  if (info.input_scan_number <= limits_.scans) return;
  std::snprintf(message_, sizeof message_, "more than %d scans", limits_.scans);
  std::longjmp(jump_buffer, 1);
}

bool has_standard_subsampling(const jpeg_decompress_struct& info) {
  for (int i = 0; i < info.num_components; ++i) {
    const jpeg_component_info& component = info.comp_info[i];
    const int max_factor = i == 0 ? 2 : 1;
    if (component.h_samp_factor > max_factor || component.v_samp_factor > max_factor) return false;
  }
  return true;
}

JpegGrid jpeg_grid(const jpeg_decompress_struct& info) {
  const bool gray = info.num_components == 1;  // MCUs of gray images are single blocks
  const auto unit = [gray](int factor) {
    return uint32_t{DCTSIZE} * (gray ? 1u : static_cast<uint32_t>(factor));
  };
  return {.height = info.image_height,
          .width = info.image_width,
          .unit_height = unit(info.max_v_samp_factor),
          .unit_width = unit(info.max_h_samp_factor),
          .interval = info.restart_interval};
}

}  // namespace stoker::image
