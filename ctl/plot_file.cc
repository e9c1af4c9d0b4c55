#include "ctl/plot_file.h"

#include <chrono>
#include <filesystem>

#include "ctl/plot.h"
#include "shared/base/file.h"
#include "shared/base/run_program.h"
#include "shared/base/scratch_directory.h"

namespace stoker::ctl {
namespace {

constexpr std::chrono::seconds kConversionTimeout{60};
constexpr uint64_t kMaxPngBytes = 256 << 20;

// Twice the size in pixels, for screens with a high resolution. The program writes to a folder of this user: in that of
// `path`, another user could have left a symlink for it.
Status write_png(const std::string& svg, const std::string& path) {
  const ScratchDirectory scratch("stokerctl-plot");
  if (scratch.path().empty())
    return Status(StatusCode::kIoError, "cannot create a folder in TMPDIR for " + path);
  const std::string unfinished = join_path(scratch.path(), "plot.png");
  Status written = run_program({"rsvg-convert", "--format=png", "--zoom=2",
                                "--background-color=white", "--output=" + unfinished},
                               svg, kConversionTimeout, {});
  if (written.code() == StatusCode::kNotFound)
    return Status(StatusCode::kNotFound,
                  path + ": PNG requires rsvg-convert (apt install librsvg2-bin); or write .svg");
  if (!written.ok()) return written;
  STOKER_ASSIGN_OR_RETURN(const std::string png, read_file(unfinished, kMaxPngBytes));
  return write_file_atomically(default_file_system(), path, png);
}

}  // namespace

std::optional<PlotFormat> plot_format_of(std::string_view path) {
  if (path.ends_with(".svg")) return PlotFormat::kSvg;
  if (path.ends_with(".png")) return PlotFormat::kPng;
  if (path.ends_with(".html")) return PlotFormat::kHtml;
  return std::nullopt;
}

std::string to_html(const std::string& svg, std::string_view title) {
  return "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>" + escaped(title) +
         "</title>\n<meta name=\"viewport\" content=\"width=device-width\">\n"
         "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
         "'unsafe-inline'\">\n"
         "<style>:root { color-scheme: light dark } body { margin: 1rem } svg { width: 100%; "
         "height: auto; max-height: 95vh }</style>\n" +
         svg + "</html>\n";
}

Status write_plot(const std::string& svg, const std::string& path) {
  const auto format = plot_format_of(path);
  if (!format)
    return Status(StatusCode::kInvalidArgument,
                  path + ": has another ending than .svg, .png or .html");
  switch (*format) {
    case PlotFormat::kSvg:
      return write_file_atomically(default_file_system(), path, svg);
    case PlotFormat::kPng:
      return write_png(svg, path);
    case PlotFormat::kHtml:
      return write_file_atomically(default_file_system(), path,
                                   to_html(svg, std::filesystem::path(path).stem().string()));
  }
  return {};
}

}  // namespace stoker::ctl
