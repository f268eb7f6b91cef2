# Copyright 2026, The tff_dp Authors.
# SPDX-License-Identifier: Apache-2.0
"""TensorFlow operations that a foreign graph may have.

Each computes from its inputs, and keeps state only in memory. None reads or
writes a file, opens a connection, prints, calls Python, ends the process, or
runs a graph that is written in a tensor. All other operations are refused,
including new ones of later TensorFlow versions. Look up the effects of an
operation before you add its name. An operation without state need not be safe:
`ReadFile`, `ImmutableConst`, `DatasetFromGraph` and `Abort` have no state.
"""

# Arithmetic, arrays, layers of models, control flow, strings; no state.
_COMPUTE = '''
    Abs AccumulateNV2 Acos Acosh Add AddN AddV2 AdjustContrast
    AdjustContrastv2 AdjustHue AdjustSaturation All Angle Any ApproxTopK
    ApproximateEqual ArgMax ArgMin AsString Asin Asinh Assert Atan Atan2
    Atanh AvgPool AvgPool3D AvgPool3DGrad AvgPoolGrad BandedTriangularSolve
    BatchMatMul BatchMatMulV2 BatchMatMulV3 BatchToSpace BatchToSpaceND
    BesselI0 BesselI0e BesselI1 BesselI1e BesselJ0 BesselJ1 BesselK0
    BesselK0e BesselK1 BesselK1e BesselY0 BesselY1 Betainc BiasAdd
    BiasAddGrad BiasAddV1 Bincount Bitcast BitwiseAnd BitwiseOr BitwiseXor
    BlockLSTM BlockLSTMGrad BlockLSTMGradV2 BlockLSTMV2 BroadcastArgs
    BroadcastGradientArgs BroadcastTo Bucketize CTCLoss CTCLossV2 Case Cast
    Ceil CheckNumerics Cholesky CholeskyGrad ClipByValue
    CombinedNonMaxSuppression Complex ComplexAbs Concat ConcatOffset
    ConcatV2 Conj ConjugateTranspose Const Conv Conv2D Conv2DBackpropFilter
    Conv2DBackpropFilterV2 Conv2DBackpropInput Conv2DBackpropInputV2 Conv3D
    Conv3DBackpropFilter Conv3DBackpropFilterV2 Conv3DBackpropInput
    Conv3DBackpropInputV2 Cos Cosh CropAndResize CropAndResizeGradBoxes
    Cross CudnnRNNBackpropV2 CudnnRNNBackpropV3 CudnnRNNCanonicalToParamsV2
    CudnnRNNParamsSize CudnnRNNV2 CudnnRNNV3 Cumprod Cumsum
    CumulativeLogsumexp DataFormatDimMap DataFormatVecPermute Dawsn
    DecodePaddedRaw DenseBincount DenseToDenseSetOperation DepthToSpace
    DepthwiseConv2dNative DepthwiseConv2dNativeBackpropFilter
    DepthwiseConv2dNativeBackpropInput DeviceIndex Diag DiagPart Digamma
    Dilation2D Dilation2DBackpropFilter Dilation2DBackpropInput Div DivNoNan
    DrawBoundingBoxes DrawBoundingBoxesV2 DynamicPartition DynamicStitch Eig
    Einsum Elu EluGrad Empty EmptyTensorList EnsureShape Enter Equal Erf
    Erfc Erfinv EuclideanNorm Exit Exp ExpandDims Expint Expm1
    ExtractImagePatches ExtractVolumePatches FFT FFT2D FFT3D FFTND Fill
    Fingerprint Floor FloorDiv FloorMod FractionalAvgPool
    FractionalAvgPoolGrad FractionalMaxPool FractionalMaxPoolGrad FresnelCos
    FresnelSin FusedBatchNorm FusedBatchNormGrad FusedBatchNormGradV2
    FusedBatchNormGradV3 FusedBatchNormV2 FusedBatchNormV3 FusedPadConv2D
    FusedResizeAndPadConv2D GRUBlockCell GRUBlockCellGrad Gather GatherNd
    GatherV2 Greater GreaterEqual GuaranteeConst HSVToRGB
    HistogramFixedWidth IFFT IFFT2D IFFT3D IFFTND IRFFT IRFFT2D IRFFT3D
    IRFFTND Identity IdentityN If Igamma IgammaGradA Igammac Imag InTopK
    InTopKV2 Inv InvGrad Invert InvertPermutation IsFinite IsInf IsNan
    L2Loss LRN LRNGrad LSTMBlockCell LSTMBlockCellGrad LeakyRelu
    LeakyReluGrad LeftShift Less LessEqual Lgamma LinSpace ListDiff Log
    Log1p LogMatrixDeterminant LogSoftmax LogicalAnd LogicalNot LogicalOr
    LoopCond LowerBound Lu MatMul MatrixBandPart MatrixDeterminant
    MatrixDiag MatrixDiagPart MatrixDiagPartV2 MatrixDiagPartV3 MatrixDiagV2
    MatrixDiagV3 MatrixExponential MatrixInverse MatrixLogarithm
    MatrixSetDiag MatrixSetDiagV2 MatrixSetDiagV3 MatrixSolve MatrixSolveLs
    MatrixSquareRoot MatrixTriangularSolve Max MaxPool MaxPool3D
    MaxPool3DGrad MaxPool3DGradGrad MaxPoolGrad MaxPoolGradGrad
    MaxPoolGradGradV2 MaxPoolGradGradWithArgmax MaxPoolGradV2
    MaxPoolGradWithArgmax MaxPoolV2 MaxPoolWithArgmax Maximum Mean Merge Min
    Minimum MirrorPad MirrorPadGrad Mod Mul MulNoNan Ndtri Neg NextAfter
    NextIteration NoOp NonMaxSuppression NonMaxSuppressionV2
    NonMaxSuppressionV3 NonMaxSuppressionV4 NonMaxSuppressionV5
    NonMaxSuppressionWithOverlaps NotEqual NthElement OneHot OnesLike
    OptionalFromValue OptionalGetValue OptionalHasValue OptionalNone Pack
    Pad PadV2 ParallelDynamicStitch PartitionedCall Placeholder
    PlaceholderWithDefault Polygamma PopulationCount Pow PreventGradient
    Prod Qr RFFT RFFT2D RFFT3D RFFTND RGBToHSV RaggedFillEmptyRows
    RaggedGather RaggedRange RaggedTensorFromVariant RaggedTensorToTensor
    RaggedTensorToVariant RaggedTensorToVariantGradient RandomGammaGrad
    RandomIndexShuffle Range Rank Real RealDiv Reciprocal ReciprocalGrad
    ReduceJoin RegexFullMatch RegexReplace Relu Relu6 Relu6Grad ReluGrad
    Reshape ResizeArea ResizeBicubic ResizeBicubicGrad ResizeBilinear
    ResizeBilinearGrad ResizeNearestNeighbor ResizeNearestNeighborGrad
    Reverse ReverseSequence ReverseV2 RightShift Rint Roll Round Rsqrt
    RsqrtGrad ScaleAndTranslate ScaleAndTranslateGrad ScatterNd
    ScatterNdNonAliasingAdd SegmentMax SegmentMaxV2 SegmentMean SegmentMin
    SegmentMinV2 SegmentProd SegmentProdV2 SegmentSum SegmentSumV2 Select
    SelectV2 SelfAdjointEig SelfAdjointEigV2 Selu SeluGrad SetSize Shape
    ShapeN Sigmoid SigmoidGrad Sign Sin Sinh Size Slice SobolSample Softmax
    SoftmaxCrossEntropyWithLogits Softplus SoftplusGrad Softsign
    SoftsignGrad SpaceToBatch SpaceToBatchND SpaceToDepth SparseConcat
    SparseFillEmptyRows SparseFillEmptyRowsGrad SparseMatMul SparseReorder
    SparseReshape SparseSegmentMean SparseSegmentMeanGrad
    SparseSegmentMeanWithNumSegments SparseSegmentSqrtN
    SparseSegmentSqrtNGrad SparseSegmentSqrtNWithNumSegments
    SparseSegmentSum SparseSegmentSumGrad SparseSegmentSumWithNumSegments
    SparseSlice SparseSoftmaxCrossEntropyWithLogits SparseTensorDenseAdd
    SparseTensorDenseMatMul SparseToDense Spence Split SplitV Sqrt SqrtGrad
    Square SquaredDifference Squeeze StatefulPartitionedCall StatelessCase
    StatelessIf StatelessMultinomial StatelessParameterizedTruncatedNormal
    StatelessRandomBinomial StatelessRandomGammaV2 StatelessRandomGammaV3
    StatelessRandomGetAlg StatelessRandomGetKeyCounter
    StatelessRandomGetKeyCounterAlg StatelessRandomNormal
    StatelessRandomNormalV2 StatelessRandomPoisson StatelessRandomUniform
    StatelessRandomUniformFullInt StatelessRandomUniformFullIntV2
    StatelessRandomUniformInt StatelessRandomUniformIntV2
    StatelessRandomUniformV2 StatelessShuffle StatelessTruncatedNormal
    StatelessTruncatedNormalV2 StatelessWhile StaticRegexFullMatch
    StaticRegexReplace StopGradient StridedSlice StridedSliceGrad StringJoin
    StringLength StringLower StringNGrams StringSplit StringSplitV2
    StringStrip StringToHashBucket StringToHashBucketFast
    StringToHashBucketStrong StringToNumber StringUpper Sub Substr Sum Svd
    Switch Tan Tanh TanhGrad TensorListConcat TensorListConcatLists
    TensorListConcatV2 TensorListElementShape TensorListFromTensor
    TensorListGather TensorListGetItem TensorListLength TensorListPopBack
    TensorListPushBack TensorListPushBackBatch TensorListReserve
    TensorListResize TensorListScatter TensorListScatterIntoExistingList
    TensorListScatterV2 TensorListSetItem TensorListSplit TensorListStack
    TensorScatterAdd TensorScatterMax TensorScatterMin TensorScatterSub
    TensorScatterUpdate TensorStridedSliceUpdate Tile TileGrad ToBool TopK
    TopKV2 Transpose TridiagonalMatMul TridiagonalSolve TruncateDiv
    TruncateMod Unique UniqueV2 UniqueWithCounts UniqueWithCountsV2 Unpack
    UnravelIndex UnsortedSegmentJoin UnsortedSegmentMax UnsortedSegmentMin
    UnsortedSegmentProd UnsortedSegmentSum UpperBound Where While Xdivy
    Xlog1py Xlogy ZerosLike Zeta
'''
# Variables, tables and arrays in memory.
_MEMORY = '''
    AnonymousHashTable AnonymousMutableDenseHashTable
    AnonymousMutableHashTable AnonymousMutableHashTableOfTensors
    AssignAddVariableOp AssignSubVariableOp AssignVariableOp
    DestroyResourceOp DisableCopyOnRead HashTableV2
    InitializeTableFromDataset InitializeTableV2 LookupTableExportV2
    LookupTableFindV2 LookupTableImportV2 LookupTableInsertV2
    LookupTableRemoveV2 LookupTableSizeV2 MutableDenseHashTableV2
    MutableHashTableOfTensorsV2 MutableHashTableV2 ReadVariableOp
    ResourceApplyAdaMax ResourceApplyAdadelta ResourceApplyAdagrad
    ResourceApplyAdagradDA ResourceApplyAdagradV2 ResourceApplyAdam
    ResourceApplyAdamWithAmsgrad ResourceApplyAddSign
    ResourceApplyCenteredRMSProp ResourceApplyFtrl ResourceApplyFtrlV2
    ResourceApplyGradientDescent ResourceApplyKerasMomentum
    ResourceApplyMomentum ResourceApplyPowerSign
    ResourceApplyProximalAdagrad ResourceApplyProximalGradientDescent
    ResourceApplyRMSProp ResourceGather ResourceGatherNd ResourceScatterAdd
    ResourceScatterDiv ResourceScatterMax ResourceScatterMin
    ResourceScatterMul ResourceScatterNdAdd ResourceScatterNdMax
    ResourceScatterNdMin ResourceScatterNdSub ResourceScatterNdUpdate
    ResourceScatterSub ResourceScatterUpdate ResourceSparseApplyAdadelta
    ResourceSparseApplyAdagrad ResourceSparseApplyAdagradDA
    ResourceSparseApplyAdagradV2 ResourceSparseApplyCenteredRMSProp
    ResourceSparseApplyFtrl ResourceSparseApplyFtrlV2
    ResourceSparseApplyKerasMomentum ResourceSparseApplyMomentum
    ResourceSparseApplyProximalAdagrad
    ResourceSparseApplyProximalGradientDescent ResourceSparseApplyRMSProp
    ResourceStridedSliceAssign TensorArrayCloseV3 TensorArrayConcatV3
    TensorArrayGatherV3 TensorArrayGradV3 TensorArrayReadV3
    TensorArrayScatterV3 TensorArraySizeV3 TensorArraySplitV3 TensorArrayV3
    TensorArrayWriteV3 VarHandleOp VarIsInitializedOp VariableShape
'''
# Random numbers with a state.
_RANDOM = '''
    AnonymousRandomSeedGenerator AnonymousSeedGenerator
    DeleteRandomSeedGenerator DeleteSeedGenerator DummySeedGenerator
    Multinomial NonDeterministicInts ParameterizedTruncatedNormal
    RandomGamma RandomPoissonV2 RandomShuffle RandomStandardNormal
    RandomUniform RandomUniformInt RngReadAndSkip RngSkip
    StatefulRandomBinomial StatefulStandardNormalV2 StatefulTruncatedNormal
    StatefulUniform StatefulUniformFullInt StatefulUniformInt
    TruncatedNormal
'''
# Data sets of values in memory.
_DATA = '''
    AnonymousIterator AnonymousIteratorV2 AnonymousIteratorV3 BatchDataset
    BatchDatasetV2 ConcatenateDataset DatasetCardinality
    DatasetToSingleElement DeleteIterator DummyIterationCounter
    FilterDataset FinalizeDataset FlatMapDataset InterleaveDataset
    IteratorGetNext IteratorGetNextAsOptional IteratorGetNextSync
    MakeIterator MapDataset OptionsDataset PaddedBatchDataset
    PaddedBatchDatasetV2 ParallelBatchDataset ParallelMapDataset
    ParallelMapDatasetV2 PrefetchDataset RangeDataset ReduceDataset
    RepeatDataset ScanDataset ShardDataset ShuffleAndRepeatDataset
    ShuffleAndRepeatDatasetV2 ShuffleDataset ShuffleDatasetV2
    ShuffleDatasetV3 SkipDataset SparseTensorSliceDataset TakeDataset
    TakeWhileDataset TensorDataset TensorSliceDataset UnbatchDataset
    WindowDataset ZipDataset
'''

NAMES = frozenset(
    f'{_COMPUTE} {_MEMORY} {_RANDOM} {_DATA}'.split()
)
