// DatasetConfig: the settings of one dataset, data.NAME: a variant per format, and mixtures of
// other datasets.
//
// Threads: values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "shared/config/enum_words.h"

namespace stoker::config {

// In the order of the alternatives of DatasetSource; kCifar10 and kCifar100 share one.
enum class DatasetFormat {
  kText,
  kTokens,
  kImageFolder,
  kImageList,
  kIdx,
  kCifar10,
  kCifar100,
  kNumpy,
  kTfrecord,
  kWebdataset,
  kCsv,
  kJsonl,
  kSynthetic
};
template <>
inline constexpr auto kWords<DatasetFormat> = words("text", "tokens", "image_folder", "image_list",
                                                    "idx", "cifar10", "cifar100", "numpy",
                                                    "tfrecord", "webdataset", "csv", "jsonl",
                                                    "synthetic");
// How the samples of data.NAME.split are chosen.
enum class SplitBy { kPosition, kRandom, kStratified, kGroup };
template <>
inline constexpr auto kWords<SplitBy> = words("position", "random", "stratified", "group");
enum class NumberList { kFloat32, kInt64 };
template <>
inline constexpr auto kWords<NumberList> = words("float32", "int64");
enum class TokenType { kUint16, kUint32 };
template <>
inline constexpr auto kWords<TokenType> = words("uint16", "uint32");
enum class Refresh { kNever, kEpoch, kImmediate };
template <>
inline constexpr auto kWords<Refresh> = words("never", "epoch", "immediate");
enum class ImageMode { kRgb, kGray };
template <>
inline constexpr auto kWords<ImageMode> = words("rgb", "gray");
// Between pixels. bicubic: only for resizing.
enum class Interpolation { kNearest, kBilinear, kBicubic };
template <>
inline constexpr auto kWords<Interpolation> = words("nearest", "bilinear", "bicubic");
// The data whose policy auto_augment uses.
enum class AugmentPolicy { kImagenet, kCifar10, kSvhn };
template <>
inline constexpr auto kWords<AugmentPolicy> = words("imagenet", "cifar10", "svhn");
enum class OnMissingField { kError, kDrop };
template <>
inline constexpr auto kWords<OnMissingField> = words("error", "drop");
enum class OnOverflow { kError, kTruncate, kDrop };
template <>
inline constexpr auto kWords<OnOverflow> = words("error", "truncate", "drop");
enum class ChatTemplate { kChatml, kLlama3, kMistral };
template <>
inline constexpr auto kWords<ChatTemplate> = words("chatml", "llama3", "mistral");
enum class CacheType { kPacked, kDecoded };
template <>
inline constexpr auto kWords<CacheType> = words("packed", "decoded");
enum class StreamQueue { kFifo, kRandomShuffle, kPaddingFifo, kPriority };
template <>
inline constexpr auto kWords<StreamQueue> = words("fifo", "random_shuffle", "padding_fifo",
                                                  "priority");

// ---- transforms: torchvision.transforms.v2 ---------------------------------------------------------

// [height, width]; one number is the shorter side and needs a center_crop after it.
struct Resize {
  std::vector<int64_t> size;
  Interpolation interpolation = Interpolation::kBilinear;
  bool operator==(const Resize&) const = default;
};

struct CenterCrop {
  std::vector<int64_t> size;  // one number: a square
  bool operator==(const CenterCrop&) const = default;
};

struct RandomResizedCrop {
  std::vector<int64_t> size;                   // one number: a square
  std::vector<double> scale = {0.08, 1.0};     // fraction of the image area
  std::vector<double> ratio = {0.75, 1.3333};  // width / height
  Interpolation interpolation = Interpolation::kBilinear;
  bool operator==(const RandomResizedCrop&) const = default;
};

struct RandomCrop {
  std::vector<int64_t> size;  // size of the incoming image
  int64_t padding = 0;        // black pixels on each side
  bool operator==(const RandomCrop&) const = default;
};

struct RandomHorizontalFlip {
  double p = 0.5;
  bool operator==(const RandomHorizontalFlip&) const = default;
};

struct ColorJitter {
  double brightness = 0;
  double contrast = 0;
  double saturation = 0;
  double hue = 0;
  bool operator==(const ColorJitter&) const = default;
};

struct RandomVerticalFlip {
  double p = 0.5;
  bool operator==(const RandomVerticalFlip&) const = default;
};

// One number x of `degrees` is [-x, x]. `fill`: levels of pixels from outside the image.
struct RandomRotation {
  std::vector<double> degrees;
  Interpolation interpolation = Interpolation::kNearest;
  std::vector<double> fill = {0};
  bool operator==(const RandomRotation&) const = default;
};

struct RandomAffine {
  std::vector<double> degrees;
  std::vector<double> translate = {};  // fractions of width and height; empty: none
  std::vector<double> scale = {};      // [from, to]; empty: 1
  std::vector<double> shear = {};      // degrees: x, [from, to] or [x from, x to, y from, y to]
  Interpolation interpolation = Interpolation::kNearest;
  std::vector<double> fill = {0};
  bool operator==(const RandomAffine&) const = default;
};

struct RandomPerspective {
  double distortion_scale = 0.5;
  double p = 0.5;
  Interpolation interpolation = Interpolation::kBilinear;
  std::vector<double> fill = {0};
  bool operator==(const RandomPerspective&) const = default;
};

struct GaussianBlur {
  int64_t kernel_size = 0;  // pixels, odd
  std::vector<double> sigma = {0.1, 2.0};
  bool operator==(const GaussianBlur&) const = default;
};

struct RandomGrayscale {
  double p = 0.1;
  bool operator==(const RandomGrayscale&) const = default;
};

struct RandomInvert {
  double p = 0.5;
  bool operator==(const RandomInvert&) const = default;
};

struct RandomPosterize {
  int64_t bits = 8;
  double p = 0.5;
  bool operator==(const RandomPosterize&) const = default;
};

struct RandomSolarize {
  double threshold = 0;  // a level
  double p = 0.5;
  bool operator==(const RandomSolarize&) const = default;
};

struct RandomAdjustSharpness {
  double sharpness_factor = 1;
  double p = 0.5;
  bool operator==(const RandomAdjustSharpness&) const = default;
};

struct RandomAutocontrast {
  double p = 0.5;
  bool operator==(const RandomAutocontrast&) const = default;
};

struct RandomEqualize {
  double p = 0.5;
  bool operator==(const RandomEqualize&) const = default;
};

// Policies that choose operators and their magnitudes. `fill` empty: torchvision's None.
struct RandAugment {
  int64_t num_ops = 2;
  int64_t magnitude = 9;
  int64_t num_magnitude_bins = 31;
  Interpolation interpolation = Interpolation::kNearest;
  std::vector<double> fill = {};
  bool operator==(const RandAugment&) const = default;
};

struct TrivialAugmentWide {
  int64_t num_magnitude_bins = 31;
  Interpolation interpolation = Interpolation::kNearest;
  std::vector<double> fill = {};
  bool operator==(const TrivialAugmentWide&) const = default;
};

struct AutoAugment {
  AugmentPolicy policy = AugmentPolicy::kImagenet;
  Interpolation interpolation = Interpolation::kNearest;
  std::vector<double> fill = {};
  bool operator==(const AutoAugment&) const = default;
};

struct AugMix {
  int64_t severity = 3;
  int64_t mixture_width = 3;
  std::optional<int64_t> chain_depth = {};  // null: 1 to 3, at random
  double alpha = 1;
  bool all_ops = true;
  Interpolation interpolation = Interpolation::kBilinear;
  std::vector<double> fill = {};
  bool operator==(const AugMix&) const = default;
};

struct RandomErasing {
  double p = 0.5;
  std::vector<double> scale = {0.02, 0.33};  // fraction of the image area
  std::vector<double> ratio = {0.3, 3.3};    // height / width
  std::vector<double> value = {0};           // levels
  bool operator==(const RandomErasing&) const = default;
};

// (x / 255 - mean) / std, on the device; one number, or one per channel.
struct Normalize {
  std::vector<double> mean;
  std::vector<double> std;
  bool operator==(const Normalize&) const = default;
};

using Transform =
    std::variant<Resize, CenterCrop, RandomResizedCrop, RandomCrop, RandomHorizontalFlip,
                 RandomVerticalFlip, RandomRotation, RandomAffine, RandomPerspective, ColorJitter,
                 GaussianBlur, RandomGrayscale, RandomInvert, RandomPosterize, RandomSolarize,
                 RandomAdjustSharpness, RandomAutocontrast, RandomEqualize, RandAugment,
                 TrivialAugmentWide, AutoAugment, AugMix, RandomErasing, Normalize>;
using Transforms = std::vector<Transform>;

std::string_view name_of(const Transform& transform);  // "random_vertical_flip"
// "random_vertical_flip: {p: 0.5}", with all parameters.
std::string to_text(const Transform& transform);

// Transforms that determine the size of encoded images, and come first.
template <typename T>
inline constexpr bool kResizes = std::is_same_v<T, Resize> || std::is_same_v<T, CenterCrop> ||
                                 std::is_same_v<T, RandomResizedCrop>;

// The transform of this type in the list; null if there is none.
template <typename T>
const T* find_transform(const Transforms& transforms) {
  for (const Transform& each : transforms)
    if (const T* const found = std::get_if<T>(&each)) return found;
  return nullptr;
}

// ---- batch transforms: MixUp, CutMix and RandomChoice of torchvision.transforms.v2 -----------------

struct Mixup {
  double alpha = 1.0;
  bool operator==(const Mixup&) const = default;
};

struct Cutmix {
  double alpha = 1.0;
  bool operator==(const Cutmix&) const = default;
};

struct RandomChoice {
  std::vector<std::variant<Mixup, Cutmix>> transforms;
  bool operator==(const RandomChoice&) const = default;
};

using BatchTransform = std::variant<Mixup, Cutmix, RandomChoice>;

// ---- components shared by several formats -------------------------------------------------------

// A value that is a list of numbers -> a tensor of its name.
struct ListConfig {
  std::string name;
  std::string field = {};  // name of the value; empty: the same
  NumberList dtype = NumberList::kFloat32;
  std::vector<int64_t> shape;         // of the list, or of one of its elements with max_length
  std::optional<int64_t> max_length;  // lists of different lengths, padded to this
  int64_t padding_value = 0;
  bool operator==(const ListConfig&) const = default;
};

// The names of record values by role; empty: the dataset does not have this role.
struct FieldNames {
  std::string image = {};                // an encoded image -> `input` U8 [C, H, W]
  std::vector<std::string> input = {};   // bytes or numbers -> `input` of input_shape
  std::string label = {};                // a class index or name -> `label` I64
  std::string mask = {};                 // an encoded image, a class per pixel -> `mask` U8 [H, W]
  std::vector<std::string> target = {};  // numbers -> `target` F32 [num_targets]
  std::string labels = {};               // class indices per time step, or the CTC target
  std::string text = {};                 // bytes are token ids
  std::string caption = {};              // texts that describe the image
  std::string messages = {};             // a conversation; the assistant's messages are learned
  std::string input_ids = {};            // token ids
  std::string length = {};               // number of valid time steps (arrays of an .npz)
  std::string priority = {};             // an integer, for StreamQueue::kPriority
  std::vector<std::string> others = {};  // for models with their own loss -> tensors of these names
  std::vector<ListConfig> lists = {};    // the same, of lists
  std::string group = {};                // a text or an integer, for SplitBy::kGroup
  bool operator==(const FieldNames&) const = default;
};

struct SequenceConfig {
  std::optional<int64_t> block_size;  // tokens per sample; default: model.context_length
  std::optional<int64_t> max_length;  // variable-length samples, padded to this or to their bucket
  OnOverflow on_overflow = OnOverflow::kError;  // samples longer than max_length
  bool packing = false;                     // several records share a sample of max_length tokens
  std::optional<int64_t> max_label_length;  // labels per sample; null: one per time step
  int64_t max_captions = 5;                 // captions of an image that are trained on
  bool operator==(const SequenceConfig&) const = default;
};

// The words of captions, or the tokens of text, and their ids; the file decides which.
struct TokenizerConfig {
  std::string path;                                // required
  std::optional<ChatTemplate> chat_template = {};  // required with fields.messages
  bool operator==(const TokenizerConfig&) const = default;
};

struct CacheConfig {
  CacheType type = CacheType::kPacked;
  bool jpeg_restart_markers = false;  // packed: regions can be decoded alone
  std::optional<std::string> dir;     // shared between runs; null: inside the run directory
  bool operator==(const CacheConfig&) const = default;
};

// Where the tokens of a text are stored.
struct TokenCacheConfig {
  std::optional<std::string> dir;  // shared between runs; null: inside the run directory
  bool operator==(const TokenCacheConfig&) const = default;
};

// Settings shared by tfrecord, webdataset, csv and jsonl: which values of a record become tensors.
struct RecordConfig {
  FieldNames fields;
  std::vector<int64_t> input_shape;      // of `input`; of one time step with sequence.max_length
  std::optional<int64_t> num_targets;    // null: the number of names in fields.target
  std::optional<int64_t> num_classes;    // null: inferred from the labels
  std::vector<std::string> class_names;  // empty: inferred from the labels
  double max_bad_record_rate = 0.001;    // of records that cannot be used; these are left out
  OnMissingField on_missing_field = OnMissingField::kError;
  SequenceConfig sequence;
  std::optional<TokenizerConfig> tokenizer;  // for fields.caption and fields.text
  bool operator==(const RecordConfig&) const = default;
};

// ---- formats -------------------------------------------------------------------------------------

struct TextDataset {
  std::string path;
  std::string glob = "**/*";
  SequenceConfig sequence;                   // block_size only
  std::optional<TokenizerConfig> tokenizer;  // null: the tokens are bytes
  std::optional<TokenCacheConfig> token_cache;
  Refresh refresh = Refresh::kNever;
  bool operator==(const TextDataset&) const = default;
};

struct TokensDataset {
  std::string path;
  TokenType dtype = TokenType::kUint16;
  SequenceConfig sequence;  // block_size only
  Refresh refresh = Refresh::kNever;
  bool operator==(const TokensDataset&) const = default;
};

struct ImageFolderDataset {
  std::string path;
  std::string glob = "**/*.{jpg,jpeg,png,webp,JPG,JPEG,PNG,WEBP}";
  ImageMode image_mode = ImageMode::kRgb;
  int64_t max_image_pixels = 100'000'000;
  bool apply_exif_orientation = false;
  Transforms transforms;
  std::optional<CacheConfig> cache;
  Refresh refresh = Refresh::kNever;
  bool operator==(const ImageFolderDataset&) const = default;
};

struct ImageListDataset {
  std::string path;  // the list
  std::string root;  // folder that its paths are relative to; empty: the folder of the list
  FieldNames fields = {.image = "path", .label = "label"};
  std::optional<int64_t> num_classes;
  std::vector<std::string> class_names;
  double max_bad_record_rate = 0.001;
  SequenceConfig sequence;                   // max_label_length and max_captions only
  std::optional<TokenizerConfig> tokenizer;  // for fields.caption
  ImageMode image_mode = ImageMode::kRgb;
  int64_t max_image_pixels = 100'000'000;
  bool apply_exif_orientation = false;
  Transforms transforms;
  std::optional<CacheConfig> cache;
  bool operator==(const ImageListDataset&) const = default;
};

struct IdxDataset {
  std::string path;
  std::string labels_path;
  std::vector<std::string> class_names;
  Transforms transforms;
  bool operator==(const IdxDataset&) const = default;
};

struct CifarDataset {
  int num_classes = 10;  // 10 or 100, determined by the format
  std::string path;
  Transforms transforms;
  bool operator==(const CifarDataset&) const = default;
};

struct NumpyDataset {
  std::string path;  // of the inputs: a file, a folder, or an .npz archive
  std::string glob = "**/*.{npy,npz}";
  std::string labels_path;
  std::string lengths_path;
  FieldNames fields;  // arrays of an .npz: input, label, target, labels, length
  std::optional<int64_t> num_classes;
  std::vector<std::string> class_names;
  double max_bad_record_rate = 0.001;
  SequenceConfig sequence;  // max_length only
  Transforms transforms;
  bool operator==(const NumpyDataset&) const = default;
};

struct TfrecordDataset {
  std::string path;
  std::string glob = "**/*";
  RecordConfig record;
  ImageMode image_mode = ImageMode::kRgb;
  int64_t max_image_pixels = 100'000'000;
  bool apply_exif_orientation = false;
  Transforms transforms;
  std::optional<CacheConfig> cache;  // decoded only
  Refresh refresh = Refresh::kNever;
  bool operator==(const TfrecordDataset&) const = default;
};

struct WebdatasetDataset {
  std::string path;
  std::string glob = "**/*.tar";
  RecordConfig record;
  ImageMode image_mode = ImageMode::kRgb;
  int64_t max_image_pixels = 100'000'000;
  bool apply_exif_orientation = false;
  Transforms transforms;
  std::optional<CacheConfig> cache;  // decoded only
  Refresh refresh = Refresh::kNever;
  bool operator==(const WebdatasetDataset&) const = default;
};

struct CsvDataset {
  std::string path;
  std::string glob = "**/*.csv";
  RecordConfig record;  // no sequences; fields.input empty: all columns but the label or targets
  std::vector<std::string> column_names;  // empty: the first row of each file is the header
  // Cells that are missing values; empty: those of pandas, in columns of numbers.
  std::vector<std::string> na_values;
  std::string delimiter = ",";
  Refresh refresh = Refresh::kNever;
  bool operator==(const CsvDataset&) const = default;
};

struct JsonlDataset {
  std::string path;
  std::string glob = "**/*.{jsonl,ndjson,json}";
  RecordConfig record;
  Refresh refresh = Refresh::kNever;
  bool operator==(const JsonlDataset&) const = default;
};

// A source without an index. The names are those of TensorFlow's queues.
struct StreamConfig {
  std::string source;  // stdin | spool | external | a path | a pattern
  StreamQueue queue = StreamQueue::kFifo;
  int64_t capacity = 1000;                   // elements of the queue
  std::optional<int64_t> min_after_dequeue;  // kRandomShuffle; null: half of the capacity
  std::optional<int64_t> num_threads;        // readers; null: 4 for files and external, otherwise 1
  std::optional<int64_t> num_epochs;         // null: the files are repeated without end
  int64_t save_elements_mib = 64;            // of an input that cannot be read again
  bool operator==(const StreamConfig&) const = default;

  bool is_stdin() const { return source == "stdin"; }
  bool is_spool() const { return source == "spool"; }
  // 0 unless the queue is kRandomShuffle.
  int64_t shuffle_minimum() const {
    if (queue != StreamQueue::kRandomShuffle) return 0;
    return min_after_dequeue.value_or(capacity / 2);
  }
};

enum class LabelRule { kClassMean, kSumPositive };
template <>
inline constexpr auto kWords<LabelRule> = words("class_mean", "sum_positive");
struct SyntheticDataset {
  uint64_t num_samples = 0;            // required
  std::vector<int64_t> input_shape;    // required
  std::optional<int64_t> num_classes;  // null: regression
  LabelRule label_rule = LabelRule::kClassMean;
  int64_t num_targets = 1;  // for regression
  double noise_std = 0.1;
  bool operator==(const SyntheticDataset&) const = default;
};

// Samples of other datasets in fixed proportions. Each dataset has its own epochs.
struct Mixture {
  std::vector<std::pair<std::string, double>> shares;  // in the order of the file
  bool operator==(const Mixture&) const = default;
};

// Every sample of other datasets once per epoch.
struct Concat {
  std::vector<std::string> datasets;
  bool operator==(const Concat&) const = default;
};

struct DatasetSource
    : std::variant<TextDataset, TokensDataset, ImageFolderDataset, ImageListDataset, IdxDataset,
                   CifarDataset, NumpyDataset, TfrecordDataset, WebdatasetDataset, CsvDataset,
                   JsonlDataset, SyntheticDataset, Mixture, Concat> {
  using variant::variant;
  DatasetSource();
  DatasetSource(const DatasetSource& other);
  DatasetSource(DatasetSource&& other) noexcept;
  DatasetSource& operator=(const DatasetSource& other);
  DatasetSource& operator=(DatasetSource&& other) noexcept;
  ~DatasetSource();
  bool operator==(const DatasetSource& other) const;
};

struct DatasetConfig {
  DatasetSource source;

  // For all formats except mixture and concat, whose components have their own values.
  std::vector<double> split = {0.0, 1.0};  // [from, to) as fractions of the source
  SplitBy split_by = SplitBy::kPosition;
  uint64_t split_seed = 0;              // not for kPosition
  uint64_t skip_samples = 0;            // at the start of the split
  std::optional<uint64_t> max_samples;  // number after skip_samples; null: all
  uint64_t repeat = 1;                  // how often a sample occurs in a training epoch
  std::string sample_weights_path;      // sampling with replacement; empty: every sample once

  std::optional<StreamConfig> stream;            // only for data.train; null: indexed files
  std::vector<BatchTransform> batch_transforms;  // only for data.train

  // For a mixture or concat this returns kText, so check combines_datasets() first.
  DatasetFormat format() const;
  bool combines_datasets() const;  // mixture or concat
  // Names of the datasets of a mixture or concat.
  std::vector<std::string> components() const;

  // Members that several formats have; null, empty or the default if this format does not have
  // them.
  const std::string& path() const;
  const std::string& glob() const;
  const Transforms* transforms() const;
  const std::optional<CacheConfig>& cache() const;
  ImageMode image_mode() const;
  int64_t max_image_pixels() const;  // 0: no encoded images
  bool applies_exif_orientation() const;
  const SequenceConfig* sequence() const;
  SequenceConfig* sequence();
  const FieldNames* fields() const;
  // The tokenizer of formats that can have captions or text; null for the others.
  std::optional<TokenizerConfig>* tokenizer();
  const std::optional<TokenizerConfig>* tokenizer() const {
    return const_cast<DatasetConfig*>(this)->tokenizer();
  }
  // The tokenizer of a text, if it is set; null also for captions.
  const TokenizerConfig* text_tokenizer() const;
  const RecordConfig* record() const;
  std::optional<int64_t> num_classes() const;
  std::vector<std::string> class_names() const;  // empty: inferred from the labels
  Refresh refresh() const;

  bool has_split() const { return split != std::vector<double>{0.0, 1.0}; }
  // A part that keeps its samples when data is added.
  bool has_stable_split() const {
    return split_by == SplitBy::kRandom || split_by == SplitBy::kGroup;
  }
  // The parts consist of whole files, or of samples that are chosen one by one; otherwise of ranges.
  bool splits_files() const;
  bool splits_samples() const {
    return has_split() && split_by != SplitBy::kPosition && !splits_files();
  }
  bool is_refreshable() const { return refresh() != Refresh::kNever; }
  bool has_tokens() const;           // samples are sequences of token ids …
  bool has_text() const;             // format text, fields.text or fields.messages
  bool has_messages() const;         // fields.messages is set
  bool has_byte_tokens() const;      // has_text() without tokenizer: the token ids are bytes
  bool has_variable_length() const;  // sequence.max_length is set
  bool is_packed() const;            // sequence.packing
  bool has_captions() const {        // fields.caption is set
    return fields() != nullptr && !fields()->caption.empty();
  }
  bool has_named_fields() const { return record() != nullptr; }
  bool is_tabular() const;       // csv, jsonl
  bool can_be_streamed() const;  // text, tokens, tfrecord, webdataset, jsonl

  bool operator==(const DatasetConfig&) const = default;
};

using DatasetConfigs = std::map<std::string, DatasetConfig>;  // by name

// The datasets that contain the samples of data.NAME, in the order of the sample numbers: itself, or
// its components in the order of the file, but a stream, whose number of samples is unknown, last.
std::vector<std::string> sampled_datasets(const DatasetConfigs& data, const std::string& name);

}  // namespace stoker::config
