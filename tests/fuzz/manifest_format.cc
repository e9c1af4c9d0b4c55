#include "shared/checkpoint/manifest.h"
#include "tests/fuzz/file_under_test.h"
#include "tests/fuzz/format.h"

namespace stoker::fuzz {
namespace {

// A manifest followed by the checksums. In addition to the invariants of file_under_test.h, the
// files in the manifest must have plain names, and both parts must survive a round trip of writing
// and reading.
bool run(std::string_view input) {
  const auto parts = split_input(input, 2);
  const auto manifest = checkpoint::parse_manifest(parts[0], "manifest.json");
  const auto sums = checkpoint::parse_checksums(parts[1], "SHA256SUMS");
  const bool are_valid = check_status(manifest.status()) & check_status(sums.status());
  if (manifest.ok()) {
    for (const checkpoint::WrittenFile& file : manifest->files) {
      check_invariant(checkpoint::is_file_name(file.name), "a manifest must list plain file names");
      check_invariant(checkpoint::is_sha256(file.sha256), "a manifest must list SHA-256 hashes");
    }
    const auto again = checkpoint::parse_manifest(checkpoint::to_json(*manifest), "again");
    check_invariant(again.ok() && *again == *manifest, "a manifest must survive a round trip");
  }
  if (sums.ok())
    check_invariant(checkpoint::format_checksums(*sums) == parts[1],
                    "checksums must survive a round trip");
  return are_valid;
}

checkpoint::Manifest parse_manifest_fields(uint64_t step, const std::string& live) {
  checkpoint::Manifest manifest{.step = step, .epoch = 1, .next_ticket = 4 * step};
  manifest.created_at = "2026-01-31T12:00:00.000Z";
  manifest.parent_checkpoint = "step-000000001";
  manifest.files = {{"model.safetensors", 96, std::string(64, 'a')},
                    {"optimizer.safetensors", 8, std::string(64, '0')}};
  manifest.live_settings = live;
  if (step > 2) manifest.sample_errors = step / 3;
  return manifest;
}

std::string manifest_and_checksums(const checkpoint::Manifest& manifest) {
  std::vector<checkpoint::Checksum> sums;
  for (const auto& file : manifest.files) sums.push_back({file.sha256, file.name});
  sums.push_back({std::string(64, 'f'), "manifest.json"});
  return join_input({checkpoint::to_json(manifest), checkpoint::format_checksums(sums)});
}

}  // namespace

const Format& manifest_format() {
  static constexpr Format kFormat{
      .name = "manifest", .run = run, .seeds = [] {
        return std::vector<std::string>{
            manifest_and_checksums(parse_manifest_fields(2, "{}")),
            manifest_and_checksums(parse_manifest_fields(
                1'000'000'000'000, R"({"lr_scale":0.5,"quarantined":[1,2]})"))};
      }};
  return kFormat;
}

}  // namespace stoker::fuzz
