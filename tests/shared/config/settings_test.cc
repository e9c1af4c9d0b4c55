// The Config parsed from valid texts, and load_config().
#include <filesystem>

#include "tests/shared/config/config_text.h"
#include "tests/support/temporary_directory.h"

namespace stoker::config::test {
namespace {

template <typename T>
T model_of(const Config& config) {
  EXPECT_TRUE(std::holds_alternative<T>(config.model.arch));
  return std::holds_alternative<T>(config.model.arch) ? std::get<T>(config.model.arch) : T{};
}

TEST(SettingsTest, TakesDefaultsForKeysThatAreMissing) {
  Config expected;
  TextDataset text;
  text.path = "corpus.txt";
  text.sequence.block_size = 128;
  expected.data["train"].source = text;
  expected.eval.datasets = {};
  EXPECT_EQ(valid_config(kTextData), expected);
}

TEST(SettingsTest, ReadsEverySection) {
  const Config config = valid_config(
      "run: {dir: runs/x, seed: 18446744073709551615, rng: per_ticket, deterministic: true}\n"
      "data:\n"
      "  train: {format: tokens, path: t.bin, dtype: uint32, split: [0, 0.5],\n"
      "          sequence: {block_size: 64}}\n"
      "  held-out_2: {format: text, path: b.txt, glob: \"*.h\"}\n"
      "feed: {num_workers: 3, num_processes: 0, prefetch_batches: 4, shuffle: none,\n"
      "       on_sample_error: fail, max_sample_error_rate: 0, worker_timeout_seconds: null}\n"
      "model: {name: gpt, num_layers: 2, embed_dim: 64, num_heads: 4, context_length: 128,\n"
      "        vocab_size: 50257, dropout: 0.1, pretrained: {path: a.safetensors},\n"
      "        freeze: [\"tok.*\", pos.weight]}\n"
      "task: {name: language_modeling}\n"
      "optimizer: {name: adam, lr: 1e-3, betas: [0.8, 0.9], eps: 1.0e-6, weight_decay: 0}\n"
      "scheduler: {name: step, warmup_steps: 5, step_size: 7, gamma: 0.5}\n"
      "train: {max_steps: 9, micro_batch_size: 2, device: \"cuda:1\", precision: bf16,\n"
      "        gradient_accumulation_steps: 4, max_grad_norm: null, num_threads: 6}\n"
      "distributed: {reduction: ordered}\n"
      "cluster: {ps: [a:2222, \"[::1]:2222\"], worker: [c:2222], replicas: async,\n"
      "          max_staleness: 3, placement: bytes}\n"
      "checkpoint: {save_every_steps: null, save_every_seconds: 1.5, keep_last: 2,\n"
      "             keep_every_steps: 5, save_top_k: 0, on_write_error: fail,\n"
      "             save_at_start: true}\n"
      "eval: {datasets: [held-out_2], checkpoints: all, batch_size: 3, num_threads: 2,\n"
      "       max_samples: 100, timeout_seconds: 2, max_attempts: 1,\n"
      "       early_stopping: {patience: 4, stopping_threshold: -1.5},\n"
      "       generate: {max_new_tokens: 7, prompt: \"a b\", top_k: null, top_p: 0.9}}\n"
      "metrics: {log_every_steps: 1, tensorboard: false}\n"
      "control: {socket: null, operators: [alice, \"1001\"]}\n"
      "log: {level: warning}\n");
  EXPECT_EQ(config.run.seed, 18446744073709551615u);
  EXPECT_EQ(config.run.rng, Rng::kPerTicket);
  EXPECT_TRUE(config.run.deterministic);
  ASSERT_EQ(config.data.size(), 2u);
  const DatasetConfig& train = config.data.at("train");
  EXPECT_EQ(train.format(), DatasetFormat::kTokens);
  EXPECT_EQ(std::get<TokensDataset>(train.source).dtype, TokenType::kUint32);
  EXPECT_EQ(train.split, (std::vector<double>{0.0, 0.5}));
  EXPECT_EQ(train.sequence()->block_size, 64);
  EXPECT_EQ(config.data.at("held-out_2").glob(), "*.h");
  EXPECT_EQ(config.feed.num_workers, 3);
  EXPECT_EQ(config.feed.num_processes, 0);
  EXPECT_EQ(config.feed.shuffle, ShuffleMode::kNone);
  EXPECT_EQ(config.feed.on_sample_error, OnSampleError::kFail);
  EXPECT_EQ(config.feed.worker_timeout_seconds, std::nullopt);
  EXPECT_EQ(model_of<GptConfig>(config).vocab_size, 50257);
  EXPECT_EQ(config.model.pretrained, PretrainedConfig{.path = "a.safetensors"});
  EXPECT_EQ(config.model.freeze, (std::vector<std::string>{"tok.*", "pos.weight"}));
  EXPECT_EQ(config.optimizer.name(), OptimizerName::kAdam);
  EXPECT_EQ(config.optimizer.lr(), 1e-3);
  EXPECT_EQ(std::get<StepScheduler>(config.scheduler.schedule),
            (StepScheduler{.step_size = 7, .gamma = 0.5}));
  EXPECT_EQ(config.scheduler.warmup_steps, 5u);
  EXPECT_EQ(config.train.device, parse_device("cuda:1"));
  EXPECT_EQ(config.train.precision, Precision::kBf16);
  EXPECT_EQ(config.train.max_grad_norm, std::nullopt);
  EXPECT_EQ(config.distributed.reduction, Reduction::kOrdered);
  EXPECT_EQ(config.cluster, (ClusterConfig{.ps = {"a:2222", "[::1]:2222"},
                                           .worker = {"c:2222"},
                                           .replicas = ReplicaMode::kAsync,
                                           .max_staleness = 3,
                                           .placement = VariablePlacement::kBytes}));
  EXPECT_EQ(config.checkpoint.save_every_steps, std::nullopt);
  EXPECT_EQ(config.checkpoint.save_every_seconds, 1.5);
  EXPECT_EQ(config.checkpoint.keep_every_steps, 5u);
  EXPECT_TRUE(config.checkpoint.save_at_start);
  EXPECT_EQ(config.eval.datasets, (std::vector<std::string>{"held-out_2"}));
  EXPECT_EQ(config.eval.checkpoints, CheckpointSelection::kAll);
  EXPECT_EQ(config.eval.early_stopping,
            (EarlyStoppingConfig{.patience = 4, .stopping_threshold = -1.5}));
  EXPECT_EQ(config.eval.generate, (GenerateConfig{.max_new_tokens = 7,
                                                  .prompt = "a b",
                                                  .temperature = 0.8,
                                                  .top_k = std::nullopt,
                                                  .top_p = 0.9}));
  EXPECT_EQ(config.control.socket, std::nullopt);
  EXPECT_EQ(config.control.operators, (std::vector<std::string>{"alice", "1001"}));
  EXPECT_EQ(config.log.level, LogLevel::kWarn);
}

TEST(SettingsTest, SelectsVariantByName) {
  const auto name_of = [](const std::string& name) {
    return valid_config(kImageData + "model: {name: " + name + "}\n").model.name();
  };
  for (const std::string name :
       {"resnet8",  "resnet14", "resnet18",  "resnet20",  "resnet32", "resnet34", "resnet44",
        "resnet50", "resnet56", "resnet101", "resnet152", "vgg11",    "vgg13",    "vgg16",
        "vgg19",    "vgg11_bn", "vgg13_bn",  "vgg16_bn",  "vgg19_bn", "alexnet",  "inception_v3",
        "lenet5",   "mlp",      "vit",       "vit_b_16",  "vit_b_32", "vit_l_16", "vit_l_32"})
    EXPECT_EQ(name_of(name), name);
  EXPECT_EQ(model_of<ResnetConfig>(valid_config(kImageData + "model: {name: resnet20}\n")).depth,
            20);
  const auto vgg = model_of<VggConfig>(valid_config(kImageData + "model: {name: vgg13_bn}\n"));
  EXPECT_EQ(vgg.depth, 13);
  EXPECT_TRUE(vgg.batch_norm);
  const std::string rest = ", path: a}}\ntask: {name: classification}\nmodel: {name: mlp}\n";
  for (const auto& [format, classes] : {std::pair("cifar10", 10), std::pair("cifar100", 100)}) {
    const Config config = valid_config("data: {train: {format: " + std::string(format) + rest);
    EXPECT_EQ(std::get<CifarDataset>(config.data.at("train").source).num_classes, classes);
    EXPECT_EQ(to_string(config.data.at("train").format()), format);
  }
}

TEST(SettingsTest, ReadsTransformsWithTheirDefaults) {
  const Config config = valid_config(
      "data:\n"
      "  train:\n"
      "    format: image_folder\n"
      "    path: a\n"
      "    image_mode: gray\n"
      "    transforms:\n"
      "      - random_resized_crop: {size: 224, ratio: [1, 1]}\n"
      "      - random_crop: {size: [224, 224], padding: 4}\n"
      "      - random_horizontal_flip\n"
      "      - color_jitter: {hue: 0.1}\n"
      "      - normalize: {mean: 0.5, std: [0.25]}\n"
      "    batch_transforms:\n"
      "      - random_choice:\n"
      "          - mixup: {alpha: 0.2}\n"
      "          - cutmix\n"
      "    cache: {type: packed, jpeg_restart_markers: true}\n"
      "task: {name: classification}\n"
      "model: {name: resnet18}\n");
  const DatasetConfig& train = config.data.at("train");
  EXPECT_EQ(*train.transforms(), (Transforms{RandomResizedCrop{{224}, {0.08, 1.0}, {1, 1}},
                                             RandomCrop{{224, 224}, 4}, RandomHorizontalFlip{0.5},
                                             ColorJitter{0, 0, 0, 0.1}, Normalize{{0.5}, {0.25}}}));
  EXPECT_EQ(train.batch_transforms,
            (std::vector<BatchTransform>{RandomChoice{{Mixup{0.2}, Cutmix{1.0}}}}));
  EXPECT_EQ(train.image_mode(), ImageMode::kGray);
  EXPECT_EQ(train.cache(),
            (CacheConfig{.type = CacheType::kPacked, .jpeg_restart_markers = true, .dir = {}}));
  EXPECT_EQ(training_normalization(config)->std, std::vector<double>{0.25});
}

TEST(SettingsTest, ReadsMixtureInOrderOfFile) {
  const Config config = valid_config(
      "data: {train: {mixture: {prose: 3, code: 0.5}}, code: {format: text, path: a},\n"
      "       prose: {format: text, path: b}}\n");
  EXPECT_EQ(std::get<Mixture>(config.data.at("train").source).shares,
            (std::vector<std::pair<std::string, double>>{{"prose", 3}, {"code", 0.5}}));
  EXPECT_EQ(sampled_datasets(config), (std::vector<std::string>{"prose", "code"}));
  EXPECT_EQ(training_datasets(config), (std::vector<std::string>{"train", "prose", "code"}));
}

TEST(SettingsTest, AcceptsNumbersInEveryNotation) {
  const Config config = valid_config(
      kTextData + "optimizer: {lr: +1e-3, eps: 1E-9, weight_decay: .5}\ntrain: {max_steps: +20}\n");
  const auto adamw = std::get<AdamWConfig>(config.optimizer.method);
  EXPECT_EQ(adamw.lr, 1e-3);
  EXPECT_EQ(adamw.eps, 1e-9);
  EXPECT_EQ(adamw.weight_decay, 0.5);
  EXPECT_EQ(config.train.max_steps, 20u);
}

TEST(SettingsTest, KeepsTextThatLooksLikeNumber) {
  const Config config = valid_config(kTextData + "run: {dir: 007}\ncontrol: {socket: \"null\"}\n");
  EXPECT_EQ(config.run.dir, "007");
  EXPECT_EQ(config.control.socket, "null");
}

TEST(SettingsTest, KeepsDefaultsOfMappingThatIsGivenInPart) {
  const std::string rest =
      "transforms: [resize: {size: [8, 8]}]}}\ntask: {name: classification}\nmodel: {name: mlp}\n";
  const std::string start = "data: {train: {format: image_list, path: a.csv, ";
  const auto fields = [&](const std::string& keys) {
    return *valid_config(start + keys + rest).data.at("train").fields();
  };
  EXPECT_EQ(fields("fields: {image: file_name}, "),
            (FieldNames{.image = "file_name", .label = "label"}));
  for (const std::string keys : {"", "fields: {}, ", "fields: null, "})
    EXPECT_EQ(fields(keys), (FieldNames{.image = "path", .label = "label"})) << keys;
}

TEST(SettingsTest, AcceptsTabAsDelimiter) {
  const Config config = valid_config(
      "data: {train: {format: csv, path: a, fields: {label: y}, delimiter: \"\\t\"}}\n"
      "task: {name: classification}\nmodel: {name: mlp}\n");
  EXPECT_EQ(std::get<CsvDataset>(config.data.at("train").source).delimiter, "\t");
}

TEST(SettingsTest, AcceptsWindowsLinesAndByteOrderMark) {
  const Config config =
      valid_config("\xef\xbb\xbf" + std::string("data: {train: {format: text, path: a}}\r\n") +
                   "train:\r\n  max_steps: 5\r\n  micro_batch_size: 3\r\n");
  EXPECT_EQ(config.train.max_steps, 5u);
  EXPECT_EQ(config.train.micro_batch_size, 3);
}

TEST(SettingsTest, AcceptsSectionWhoseKeysAreCommentedOut) {
  EXPECT_EQ(valid_config(kTextData + "train:\n  # max_steps: 5\nlog: {}\n"),
            valid_config(kTextData));
  EXPECT_EQ(valid_config(kTextData + "eval:\n  early_stopping:\n    #patience: 5\n"),
            valid_config(kTextData));
}

TEST(SettingsTest, DoesNotDependOnOrderOfKeys) {
  EXPECT_EQ(valid_config(kImageData + "model: {dropout: 0.1, name: mlp}\n"),
            valid_config("model: {name: mlp, dropout: 0.1}\n" + kImageData));
}

// ---- Defaults that depend on other settings

TEST(SettingsTest, DerivesOptimizerDefaultsFromItsName) {
  const auto rate_and_decay = [](const std::string& keys) {
    const Config config = valid_config(kTextData + "optimizer: {" + keys + "}\n");
    return std::pair(config.optimizer.lr(), config.optimizer.weight_decay());
  };
  EXPECT_EQ(rate_and_decay("name: sgd"), std::pair(0.01, 0.0));
  EXPECT_EQ(rate_and_decay("name: adam"), std::pair(3.0e-4, 0.0));
  EXPECT_EQ(rate_and_decay("name: adamw"), std::pair(3.0e-4, 0.1));
  EXPECT_EQ(rate_and_decay("name: rmsprop"), std::pair(0.01, 0.0));
  EXPECT_EQ(rate_and_decay("name: adagrad"), std::pair(0.01, 0.0));
  EXPECT_EQ(rate_and_decay("name: lion"), std::pair(1.0e-4, 0.0));
  EXPECT_EQ(rate_and_decay("name: muon"), std::pair(3.0e-4, 0.1));
  EXPECT_EQ(rate_and_decay("name: sgd, lr: 0.0003, weight_decay: 0.1"), std::pair(3.0e-4, 0.1));
}

TEST(SettingsTest, DerivesGeneratorFromReduction) {
  const auto rng = [](const std::string& text) { return valid_config(kTextData + text).run.rng; };
  EXPECT_EQ(rng(""), Rng::kSequential);
  EXPECT_EQ(rng("distributed: {reduction: null}\n"), Rng::kSequential);
  EXPECT_EQ(rng("distributed: {reduction: ordered}\n"), Rng::kPerTicket);
  EXPECT_EQ(rng("distributed: {reduction: ordered}\nrun: {rng: sequential}\n"), Rng::kSequential);
}

TEST(SettingsTest, TakesSizesOfTorchvision) {
  for (const std::string name : {"vgg16", "alexnet"}) {
    const Config usual = valid_config(kImageData + "model: {name: " + name + "}\n");
    const Config other =
        valid_config(kImageData + "model: {name: " + name + ", hidden_dim: 192, dropout: 0}\n");
    const auto sizes = [&](const Config& config) {
      if (name == "vgg16") {
        const auto vgg = model_of<VggConfig>(config);
        return std::pair(vgg.hidden_dim, vgg.dropout);
      }
      const auto alexnet = model_of<AlexnetConfig>(config);
      return std::pair(alexnet.hidden_dim, alexnet.dropout);
    };
    EXPECT_EQ(sizes(usual), std::pair(int64_t{4096}, 0.5)) << name;
    EXPECT_EQ(sizes(other), std::pair(int64_t{192}, 0.0)) << name;
  }
  const VitConfig vit = model_of<VitConfig>(valid_config(kImageData + "model: {name: vit}\n"));
  EXPECT_EQ(vit, VitConfig{});
  EXPECT_EQ(vit.num_layers, 12);
  EXPECT_EQ(vit.num_heads, 12);
  EXPECT_EQ(vit.hidden_dim, 768);
  EXPECT_EQ(vit.patch_size, 16);
  const VitConfig large =
      model_of<VitConfig>(valid_config(kImageData + "model: {name: vit_l_32, dropout: 0.1}\n"));
  EXPECT_EQ(large.num_layers, 24);
  EXPECT_EQ(large.num_heads, 16);
  EXPECT_EQ(large.hidden_dim, 1024);
  EXPECT_EQ(large.patch_size, 32);
  EXPECT_EQ(large.dropout, 0.1);
  EXPECT_EQ(model_of<VitConfig>(
                valid_config(kImageData +
                             "model: {name: vit, num_layers: 4, num_heads: 3, hidden_dim: 48}\n"))
                .num_layers,
            4);
  EXPECT_EQ(model_of<InceptionV3Config>(valid_config(kImageData + "model: {name: inception_v3}\n"))
                .dropout,
            0.5);
}

TEST(SettingsTest, EvaluatesDatasetNamedVal) {
  const std::string both = "data: {train: {format: text, path: a}, val: {format: text, path: b}}\n";
  EXPECT_EQ(valid_config(both).eval.datasets, (std::vector<std::string>{"val"}));
  EXPECT_EQ(valid_config(both + "eval: {datasets: []}\n").eval.datasets,
            std::vector<std::string>{});
  EXPECT_EQ(valid_config("data: {train: {format: text, path: a}, test: {format: text, path: b}}\n")
                .eval.datasets,
            std::vector<std::string>{});
}

TEST(SettingsTest, DerivesBlockSizeFromContextLength) {
  const Config config = valid_config(
      "data: {train: {format: text, path: a},\n"
      "       val: {format: text, path: b, sequence: {block_size: 32}}}\n"
      "model: {name: gpt, context_length: 64}\n");
  EXPECT_EQ(config.data.at("train").sequence()->block_size, 64);
  EXPECT_EQ(config.data.at("val").sequence()->block_size, 32);
}

TEST(SettingsTest, DerivesPoolingFromTask) {
  const std::string data = "data: {train: {format: numpy, path: a}}\nmodel: {name: blstm}\n";
  const auto pooling = [&](const std::string& task) {
    return model_of<BlstmConfig>(valid_config(data + "task: {name: " + task + "}\n")).pooling;
  };
  EXPECT_EQ(pooling("sequence_labeling"), Pooling::kNone);
  EXPECT_EQ(pooling("ctc"), Pooling::kNone);
  EXPECT_EQ(pooling("classification"), Pooling::kLast);
}

// ---- Files

TEST(LoadConfigTest, ReadsFileAndOverrides) {
  const stoker::test::TemporaryDirectory directory;
  const std::string path = directory / "a.yaml";
  stoker::test::write_whole(path, kTextData + "model: {name: gpt}\ntrain: {max_steps: 3}\n");
  const auto config = load_config(path, {"train.micro_batch_size=4"});
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->train.max_steps, 3u);
  EXPECT_EQ(config->train.micro_batch_size, 4);
}

TEST(LoadConfigTest, NamesFileThatDoesNotExist) {
  const stoker::test::TemporaryDirectory directory;
  const auto config = load_config(directory / "none.yaml", {});
  EXPECT_EQ(config.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(config.status().message(), testing::HasSubstr("none.yaml"));
}

TEST(LoadConfigTest, RejectsDirectory) {
  const stoker::test::TemporaryDirectory directory;
  EXPECT_FALSE(load_config(directory.path(), {}).ok());
}

TEST(LoadConfigTest, RejectsFileOver1MibWithoutReadingIt) {
  const stoker::test::TemporaryDirectory directory;
  const std::string path = directory / "big.yaml";
  stoker::test::write_whole(path, kTextData);
  std::filesystem::resize_file(path, uint64_t{1} << 40);  // sparse
  const auto config = load_config(path, {});
  ASSERT_FALSE(config.ok());
  EXPECT_THAT(config.status().message(), testing::HasSubstr("big.yaml"));
}

}  // namespace
}  // namespace stoker::config::test
