"""The Chinese texts of the help (models/commands/flags.py) and of the conf comments (confs/base), by their English
text.

Keyed by the text and not by the flag or key, so that a changed English text requires a new translation.
"""

from __future__ import annotations

FLAG_MEANINGS = {
    "validate_mesh: move the vertices to where full-size photographs agree best, for as much detail as these show "
    "(reconstruct: by default if it is worth the time)": (
        "validate_mesh：把顶点移到原尺寸照片最一致的位置，得到照片所显示的细节（reconstruct：值得花时间时默认进行）"
    ),
    "reconstruct: leave the vertices on the surface of the model": "reconstruct：顶点留在模型的表面上",
    "validate_mesh: remove the ground on which the object stands, and components below a tenth of the largest; the log "
    "says if no ground was found. evaluate: of such a --mesh, points on the ground are not evaluated": (
        "validate_mesh：去掉物体所在的地面，以及面积小于最大连通块十分之一的连通块；没有找到地面时日志会说明。"
        "evaluate：对这样的 --mesh，不评估地面上的点"
    ),
    "show this help message and exit": "显示帮助并退出",
    "mode of the program, also as the first word (default: train)": "程序的模式，可作第一个词（默认：train）",
    "print version and commit": "打印版本和提交",
    "conf file (default: ./confs/demo.conf)": "配置文件（默认：./confs/demo.conf）",
    "name of the scene folder; replaces CASE_NAME and ${case} in the conf": (
        "场景文件夹的名字，替换配置里的 CASE_NAME 和 ${case}"
    ),
    "override a key of the conf, such as train.end_iter=1000; may be repeated": (
        "覆盖配置中的一个键，例如 train.end_iter=1000；可以重复使用"
    ),
    "sphere around the object: centre and radius in the world frame; the same as --set dataset.roi=...": (
        "围住物体的球：球心和半径，世界坐标系；等同于 --set dataset.roi=..."
    ),
    "the same as --set train.seed=N": "等同于 --set train.seed=N",
    "train: resume from the newest complete checkpoint, if any": "train：从最新的完整检查点继续（如果有）",
    "start from the beginning: a prepared scene is replaced; earlier checkpoints are deleted when the first new "
    "one is complete (reconstruct: when the training is finished)": (
        "从头开始：替换已准备的场景；原有训练的检查点在第一个新检查点写完后删除，reconstruct 则在新的训练完成后删除"
    ),
    "checkpoint instead of the newest: .safetensors, a published .pth, or Gaussians (.ply; for images and meshes)": (
        "代替最新检查点的文件：本程序的（.safetensors）、官方代码的（.pth）或高斯（.ply，用于图像和网格）"
    ),
    "train: names of scenes, or a file with one name per line; trained one after the other, under mpirun one scene "
    "per rank at a time": "train：多个场景，或每行一个场景的文件；逐个训练，用 mpirun 时每个进程每次训练一个场景",
    "train, inspect: also start the viewer (requires viser)": "train、inspect：同时启动查看器（需要 viser）",
    "view, --view: address of the viewer: 127.0.0.1 for this machine only (default), 0.0.0.0 for the network; the "
    "printed address has the token": (
        "view、--view：查看器的地址：127.0.0.1 只限本机（默认）；0.0.0.0 允许从网络访问；打印的地址含有令牌"
    ),
    "view, --view: port; if in use, the next free one (default: 8080)": (
        "view、--view：查看器的端口，被占用时使用下一个空闲端口（默认：8080）"
    ),
    "language of the HTML pages (default: that of the browser)": "HTML 页面的语言（默认：随浏览器）",
    "validate_mesh: region to extract, two corners in --frame (default: dataset.bbox, else the box around the "
    "region of interest)": (
        "validate_mesh：提取网格的区域，两个角点，坐标系由 --frame 决定（默认：配置的 dataset.bbox，否则为感兴趣区"
        "域的包围盒）"
    ),
    "prepare, reconstruct: photographs or frames are equirectangular panoramas and are cut into perspective views; "
    "tagged ones are recognised without it": (
        "prepare、reconstruct：照片或视频帧是 360 度全景（等距柱状投影），将切成透视视图；带标记的照片会自动识别"
    ),
    "validate_mesh: up axis of the file (default: y for .glb, .obj and .usdz, else z); evaluate: of --mesh and "
    "--gt of other programs": (
        "validate_mesh：文件中向上的轴（默认：.glb、.obj 和 .usdz 为 y，其他为 z）；evaluate：其他程序写的 --mesh 和 "
        "--gt 的向上轴"
    ),
    "validate_mesh, evaluate, inspect: mesh in --frame to colour (without a checkpoint), to evaluate or to compare, "
    ".ply, .obj, .stl or .glb (default: it is extracted; inspect: result/mesh.ply)": (
        "validate_mesh、evaluate、inspect：要上色（不需要检查点）、要评测或要比较的网格，.ply、.obj、.stl 或 .glb，"
        "坐标系由 --frame 决定（默认：重新提取；inspect：result/mesh.ply）"
    ),
    "prepare, reconstruct: earlier case, or scene folder, whose rig of cameras took the photographs; they belong "
    "together by names, else by order": (
        "prepare、reconstruct：先前的场景名或场景文件夹，照片由同一组固定相机拍摄；照片与相机按文件名对应，否则按顺序"
    ),
    "prepare, reconstruct: earlier case, or scene folder, whose lens took the photographs, kept constant": (
        "prepare、reconstruct：先前的场景名或场景文件夹，照片由同一镜头拍摄；镜头参数保持不变"
    ),
    "inspect: only measure the deviation of the mesh from this one, such as a CAD model, after rigid registration: "
    "inspect/deviation.ply, .png and .json": (
        "inspect：只测量网格与这个网格（例如 CAD 模型）的偏差，先做刚性配准；写出 inspect/deviation.ply、.png 和 .json"
    ),
    "inspect --compare: the reference is in the world frame; do not register": (
        "inspect --compare：参考网格已在世界坐标系中，不配准"
    ),
    "inspect --compare: in mm, or units of the scene without scale (default: 0.005 of the extent of the reference)": (
        "inspect --compare：公差，单位毫米，没有尺度时为场景单位（默认：参考网格尺寸的 0.5 %）"
    ),
    "world frame of the cameras, unit-sphere frame, or map grid of reference.json minus its offset; validate_mesh: "
    "of the output; evaluate: of --mesh, --gt, --tau and --points (default: world)": (
        "相机的世界坐标系、单位球坐标系，或减去偏移后的地图坐标系（reference.json）；validate_mesh：输出的坐标系；"
        "evaluate：--mesh、--gt、--tau 和 --points 的坐标系（默认：world）"
    ),
    "prepare, reconstruct: side in metres of ArUco or AprilTag markers, which give the scale": (
        "prepare、reconstruct：照片中 ArUco 或 AprilTag 标记的边长（米），由此得到尺度"
    ),
    "prepare, reconstruct: known lengths in metres, between two points of the world frame, `x y z x y z LENGTH`, "
    "or in the pixels of two photographs, `IMAGE x y x y IMAGE x y x y LENGTH`": (
        "prepare、reconstruct：一个或多个已知长度（米），由此得到尺度：世界坐标系的两个点，`x y z x y z LENGTH`；或"
        "两张照片上的两个点，`IMAGE x y x y IMAGE x y x y LENGTH`，单位像素"
    ),
    "compare: experiment folders; the name of this flag may be omitted": (
        "compare：各实验的文件夹；这个参数名可以省略"
    ),
    "evaluate: ground truth in --frame, a mesh (.ply, .obj, .stl, .glb) or a point cloud (.ply) (default: "
    "dataset.reference_mesh)": (
        "evaluate：真值，网格（.ply、.obj、.stl、.glb）或点云（.ply），坐标系由 --frame 决定（默认：配置里的 "
        "dataset.reference_mesh）"
    ),
    "evaluate: threshold of the F-score, in units of --frame (default: 0.01 radii of the region of interest)": (
        "evaluate：F 分数的距离阈值，以 --frame 的单位计（默认：感兴趣区域半径的 0.01）"
    ),
    "evaluate: SfM points in --frame, .ply (default: those of the scene)": (
        "evaluate：SfM 点，.ply 文件，坐标系由 --frame 决定（默认：场景自带的点）"
    ),
    "inspect: only print the distance of two points of the world frame, `x y z, x y z`, with the error of the scale": (
        "inspect：只打印世界坐标系中两个点 `x y z, x y z` 的距离，以及尺度的误差"
    ),
    "evaluate: the published DTU protocol, in millimetres; requires --dtu": (
        "evaluate：公开的 DTU 评测方法，单位为毫米；需要 --dtu"
    ),
    "evaluate: folder with ObsMask/ and Points/stl/": "evaluate：含有 DTU 评测的 ObsMask/ 和 Points/stl/ 的文件夹",
    "evaluate: number of the DTU scan (default: the number after scan in the scene name)": (
        "evaluate：DTU scan 的编号（默认：场景名中 scan 后面的数字）"
    ),
    "evaluate: table to which a row is added; experiments may share it (default: report/metrics.csv)": (
        "evaluate：追加一行指标的表格，可由多个实验共用（默认：实验文件夹里的 report/metrics.csv）"
    ),
    "validate_mesh: keep the vertices of marching cubes": "validate_mesh：保留移动立方体法给出的顶点位置",
    "validate_mesh: pieces: remove components below a hundredth of the area of the largest (default). views: also "
    "triangles that no camera sees or that lie outside the dilated masks. largest: also all components but the "
    "largest": (
        "validate_mesh：pieces：去掉面积小于最大连通块 1 % 的连通块（默认）；views：还去掉没有相机看到或膨胀后的掩"
        "膜排除的部分；largest：还去掉最大连通块之外的所有连通块"
    ),
    "validate_mesh: keep all components, except closed cavities without a camera": (
        "validate_mesh：保留所有连通块，除了其中没有相机的封闭空腔"
    ),
    "validate_mesh: reduce to about N triangles (default: no reduction; 100000 with a texture)": (
        "validate_mesh：简化到约 N 个三角形（默认：不简化；带纹理时 100000）"
    ),
    "validate_mesh: reduce to the fewest triangles within this distance of the surface, in units of --frame": (
        "validate_mesh：简化到与表面的距离不超过该值的最少三角形，单位由 --frame 决定"
    ),
    "validate_mesh: close the holes, for 3D printing; the log gives their number and area": (
        "validate_mesh：封闭网格的孔洞，用于 3D 打印；日志给出孔洞的数目和补出的面积"
    ),
    "validate_mesh: colours from the photographs (default: vertex, if the format supports it; texture for .usdz)": (
        "validate_mesh：取自照片的颜色（默认：格式支持时为 vertex，.usdz 为 texture）"
    ),
    "validate_mesh: texels per side of the texture (default: 2048)": "validate_mesh：纹理每边的像素数（默认：2048）",
    "output file. validate_mesh: .ply, .obj, .glb, .stl, .usdz or .3mf (default: meshes/<step>.ply, .glb with a "
    "texture). render: .mp4, or a folder for PNGs (default: in render/). compare: .html (default: compare.html in the "
    "first experiment)": (
        "输出文件。validate_mesh：.ply、.obj、.glb、.stl、.usdz 或 .3mf（默认：实验文件夹里的 meshes/<step>.ply，"
        "带纹理时为 .glb）；render：.mp4，或存放 PNG 的文件夹（默认：在 render/ 里）；compare：.html"
        "（默认：第一个实验文件夹里的 compare.html）"
    ),
    "validate_mesh, evaluate: grid points per side (default: 512)": (
        "validate_mesh、evaluate：网格每边的采样点数（默认：512）"
    ),
    "validate_mesh, evaluate: extracted level of the negative signed distance (default: 0) or of the density of a "
    "NeRF (default: 25)": (
        "validate_mesh、evaluate：提取的等值面的值，即负的符号距离（默认：0）或 NeRF 的密度（默认：25）"
    ),
    "validate_image: number of the training photograph (default: 0)": "validate_image：训练照片的编号（默认：0）",
    "validate_image, render, interpolate: reduction factor, 1: full size (default: "
    "train.validate_resolution_level; for videos the largest that leaves 720 lines; 1 for a camera-path file)": (
        "validate_image、render、interpolate：缩小的倍数，1 为原尺寸（默认：配置里的 "
        "train.validate_resolution_level；视频为至少有 720 行的最大值；相机路径文件为 1）"
    ),
    "render: orbit, photographs such as 0,5,9, or a camera-path file, also of nerfstudio (default: orbit)": (
        "render：orbit（环绕）、照片编号如 0,5,9，或本程序或 nerfstudio 的相机路径文件（默认：orbit）"
    ),
    "render: comma-separated images, shown side by side: colour, normals, depth, shape, mesh (default: colour); "
    "shape is the shaded mesh, mesh the coloured mesh": (
        "render：并排显示的图像，以逗号分隔：colour（颜色）、normals（法线）、depth（深度）、shape（明暗着色的网格"
        "）、mesh（彩色网格）（默认：colour）"
    ),
    "render: duration in seconds (default: 4, or that of the camera-path file)": (
        "render：视频时长，单位秒（默认：4，或相机路径文件中的值）"
    ),
    "render: frames per second (default: 24, or those of the camera-path file)": (
        "render：每秒帧数（默认：24，或相机路径文件中的值）"
    ),
    "prepare, reconstruct: folder of photographs, or a video": "prepare、reconstruct：照片文件夹，或一段视频",
    "prepare, reconstruct: folder of masks named as the photographs, or colorkey (backdrop of one colour), "
    "grabcut, box (rectangles on a few photographs) or rembg (if installed)": (
        "prepare、reconstruct：掩膜文件夹（文件与照片同名），或方法：colorkey（纯色背景）、grabcut、box（几张照片上"
        "的矩形）或 rembg（需已安装）"
    ),
    "prepare, reconstruct: with --masks box, a rectangle around the object: left, top, right, bottom in pixels; "
    "may be repeated; more are read from boxes.json": (
        "prepare、reconstruct：配合 --masks box，在一张照片上围住物体的矩形：左、上、右、下，单位像素；可以重复使用"
        "；还会读取照片文件夹或场景文件夹里的 boxes.json"
    ),
    "prepare, reconstruct: number of frames to use from a video (default: 80)": (
        "prepare、reconstruct：从视频中使用的帧数（默认：80）"
    ),
    "reconstruct: minutes of the whole command; auto (default): until doubling the steps hardly improves the PSNR, at "
    "most 10": "reconstruct：整条命令的分钟数；auto（默认）：直到步数加倍几乎不再提高 PSNR，最多 10",
    "auto: a GPU if one works, else the CPU (default: auto)": (
        "auto：有可用的 GPU 时使用 GPU，否则使用 CPU（默认：auto）"
    ),
    "index of the GPU (default: 0)": "GPU 的编号（默认：0）",
}

SCENE_MEANINGS = {
    "experiment folder; --case replaces CASE_NAME and ${case}": "实验文件夹；CASE_NAME 和 ${case} 由 --case 替换",
    "folders whose .py files are copied to recording/; []: none": (
        "其中的 .py 文件会复制到 recording/ 的文件夹；[]：不复制"
    ),
    "scene folder: image/, optional mask/, camera files": "场景文件夹：image/、可选的 mask/、相机文件",
    "camera file in data_dir: world_mat_i, scale_mat_i": "data_dir 里的相机文件：world_mat_i、scale_mat_i",
    "file in data_dir; its scale_mat_0 gives the mesh region": "data_dir 里的文件，其 scale_mat_0 确定提取网格的区域",
    "true: all cameras outside the region of interest; false: may be inside (fast_neus, fast_nerf, gaussians)": (
        "true：所有相机必须在感兴趣区域之外；false：可以在区域之内，用于 fast_neus、fast_nerf 和 gaussians"
    ),
    "published key, not used": "某些官方配置里的键；不使用",
    "weight of the distance of SfM points from the surface": "表面与 SfM 点之间距离的权重",
    "most background samples per step, besides packed.samples": "每步背景采样点数的上限，在 packed.samples 之外",
    "step along a ray, as a fraction of the distance from the centre": "光线上的步长，占到中心距离的比例",
    "cells per side of the occupancy grid in contracted space": "收缩空间中占据栅格每边的格数",
    "radius of the initial sphere; auto: 0.5, 0.3 without masks, 0.9 in an interior": (
        "初始球面的半径；auto：0.5，没有掩膜时 0.3，室内 0.9"
    ),
    "maximum of inv_s, in 1 / last_step; auto: 4 where photographs show the rendered background outside their masks": (
        "inv_s 的上限，以 1 / last_step 为单位；auto：照片在掩膜之外显示渲染的背景时为 4"
    ),
    "weight of the patch loss; auto: 0.5 without masks, else 0.2; 0 saves time": (
        "图块损失的权重；auto：没有掩膜时为 0.5，否则为 0.2；0 节省时间"
    ),
    "as in inside": "同 inside",
    "as in inside; auto: 0.3, plain 0.2, from depth maps 0.05": "同 inside；auto：0.3，纯色背景 0.2，从深度图开始 0.05",
    "fraction of end_iter with points of depth maps (plane sweep), from which the surface starts; 0: none": (
        "到何时为止使用深度图（平面扫描）的点，占 end_iter 的比例；曲面由深度图初始化；0：不用深度图"
    ),
    "object, interior; auto: interior if most cameras are inside and many look outwards": (
        "object 或 interior；auto：多数相机在区域内、且许多朝外时为 interior"
    ),
    "contracted, plain; auto: plain if the borders of the photographs have one colour": (
        "contracted 或 plain（纯色）；auto：照片的边缘是同一种颜色时为 plain"
    ),
    "minimum step in the region, in 1 / inv_s; at most packed.first_step": (
        "区域内沿光线的最小步长，以 1 / inv_s 为单位；不超过 packed.first_step"
    ),
    "poses: bundle adjustment before training; focal: also focal lengths": (
        "poses：训练前用光束法平差优化位姿；focal：还优化焦距"
    ),
    'scene folder of test photographs; "": none': '测试照片的场景文件夹；""：没有',
    "scene format; auto: detected": "场景格式；auto：自动识别",
    "reduction factor of the photographs": "照片的宽和高缩小的倍数",
    "every n-th photograph, from the first, is a test photograph; 0: none": "从第一张起，每 n 张取一张测试照片；0：无",
    "indices of test photographs, instead of test_every": "测试照片的编号，代替 test_every",
    "indices of validation photographs, before test_every": "验证照片的编号，优先于 test_every",
    "indices of training photographs; []: all others": "训练照片的编号；[]：其余所有照片",
    "true: masks from a backdrop of one colour, if there are no others": "true：没有掩膜时，由单一颜色的背景得到掩膜",
    "true: SfM points are triangulated, if there are neither points nor masks": (
        "true：没有点和掩膜时，三角化得到 SfM 点"
    ),
    '"x0 y0 z0 x1 y1 z1": box of mesh extraction, world frame; "": that of the region of interest': (
        '"x0 y0 z0 x1 y1 z1"：提取网格的长方体，世界坐标系；""：感兴趣区域的长方体'
    ),
    '"x y z r": sphere around the object, world frame; "": estimated': (
        '"x y z r"：围住物体的球，世界坐标系；""：自动估计'
    ),
    'ground-truth mesh, unit-sphere frame; "": none': 'evaluate 用的真值网格，位于单位球坐标系；""：没有',
}

TRAIN_MEANINGS = {
    "decay rate of Adam's second moment": "Adam 二阶矩的衰减率",
    "epsilon of Adam": "Adam 的 epsilon",
    "learning rate after the warm-up": "预热之后的学习率",
    "final learning rate, as a fraction of learning_rate": "最终学习率，占 learning_rate 的比例",
    "training steps": "训练步数",
    "rays per step; Gaussians: images per step": "每步的光线数；高斯为每步的图像数",
    "reduction factor of validation images; 0: size of the photographs, at most 800 pixels": (
        "验证图像缩小的倍数；0：与照片同样大小，最大 800 像素"
    ),
    "true: white background, for photographs masked with white; fast_neus ignores it without masks": (
        "true：白色背景，用于掩膜之外为白色的照片；fast_neus 没有掩膜时不使用"
    ),
    "steps between checkpoints; 0: only at the end": "两次写检查点之间的步数；0：只在结束时写",
    "steps between validation images, and one at the end; 0: none": (
        "两次写验证图像之间的步数，结束时也写一张；0：不写"
    ),
    "steps between meshes, and one at the end; 0: none": "两次写网格之间的步数，结束时也写一个；0：不写",
    "steps between progress lines": "终端上两行进度之间的步数",
    "weight of the eikonal loss (neus, fast_neus)": "eikonal 损失的权重（neus、fast_neus）",
    "weight of the mask loss; above 0, neus and nerf require masks": (
        "掩膜损失的权重；大于 0 时 neus 和 nerf 必须有掩膜"
    ),
    "steps of learning-rate warm-up; below end_iter": "学习率预热的步数；小于 end_iter",
    "steps of cosine annealing (cos_anneal_ratio of NeuS), for neus; 0: none": (
        "余弦退火的步数（NeuS 的 cos_anneal_ratio），用于 neus；0：不退火"
    ),
    "skipped steps in a row (NaN, Inf) before training returns to a valid state with half the learning rate": (
        "连续跳过多少步（NaN 或 Inf）后训练退回有效状态，学习率减半"
    ),
    "newest checkpoints kept; 0: all": "保留最新检查点的个数；0：全部保留",
    "schedule: cosine (NeuS), exponential (NeRF)": "学习率曲线：cosine（NeuS）、exponential（NeRF）",
    "random seed": "随机数种子",
    "rays per chunk of an image; affects only memory": "图像每块的光线数；只影响内存",
    "rays per chunk of a batch; affects memory, and results only by rounding": (
        "训练批次每块的光线数；影响内存，对结果只有舍入误差的影响"
    ),
    "limit in GB of auto chunks: resident memory (CPU), GPU memory (CUDA); auto: 90 % of the free memory": (
        "auto 分块的上限，单位 GB：常驻内存（CPU）、显存（CUDA）；auto：空闲内存的 90 %"
    ),
    "true: faster matrix products on CUDA in TF32 (10-bit mantissa); effect on a training not verified": (
        "true：CUDA 上的矩阵乘法使用 TF32（10 位尾数），更快；对训练的影响尚未验证"
    ),
    "decay of averaged weights, used for images and meshes, such as 0.999; 0: no averaging": (
        "平均权重的衰减率，例如 0.999，用于图像和网格；0：不平均"
    ),
    "grid points per side of the meshes of val_mesh_freq": "按 val_mesh_freq 写出的网格每边的采样点数",
    "whether reconstruct adds the detail of photographs to its mesh": "reconstruct 是否给网格加上照片的细节",
}

NETWORK_MEANINGS = {
    "block of the SDF; default: sdf_network (neus), sdf_grid (fast_neus)": (
        "SDF 的配置块；default：sdf_network（neus）、sdf_grid（fast_neus）"
    ),
    "block of the colour field; default: rendering_network": "颜色场的配置块；default：rendering_network",
    "block of the sampling, for model.type = neus; default: neus_renderer": (
        "采样的配置块，用于 model.type = neus；default：neus_renderer"
    ),
    "block of the radiance field; default: nerf (nerf), density_grid (fast_nerf)": (
        "辐射场的配置块；default：nerf（nerf）、density_grid（fast_nerf）"
    ),
    "optimiser": "优化器",
    "hidden layers": "隐藏层数",
    "width of hidden layers": "隐藏层宽度",
    "neus, fast_neus: surface; nerf, fast_nerf: radiance field; gaussians: splats": (
        "neus、fast_neus：表面；nerf、fast_nerf：辐射场；gaussians：高斯泼溅"
    ),
    "4 for background points (x, y, z, 1) / r; 3 for type = nerf": "背景点 (x, y, z, 1) / r 为 4；type = nerf 时为 3",
    "dimensions of a view direction": "视线方向的维数",
    "encoding frequencies of points; 0: none": "点的位置编码的频率数；0：不编码",
    "encoding frequencies of view directions; 0: none": "视线方向的位置编码的频率数；0：不编码",
    "outputs without use_viewdirs": "不使用 use_viewdirs 时的输出数",
    "hidden layers after which the encoded point is concatenated": (
        "在这些隐藏层之后拼接编码后的点；不小于 D 的序号不起作用"
    ),
    "must be true if n_outside > 0 or type = nerf": "n_outside > 0 或 type = nerf 时必须为 true",
    "outputs: signed distance and d_feature features": "输出数：一个符号距离和 d_feature 个特征",
    "dimensions of a point": "点的维数",
    "width of hidden layers; above 3 + 6 * multires if skip_in is not empty": (
        "隐藏层宽度；skip_in 非空时必须大于 3 + 6 * multires"
    ),
    "layers in 1..n_layers at which the encoded point is concatenated": (
        "在这些层拼接编码后的点；都在 1..n_layers 之内"
    ),
    "radius of the initial sphere, scaled frame": "初始球的半径，在缩放后的坐标系中",
    "factor on input points, divisor of output distances": "输入的点乘以这个系数，输出的距离除以它",
    "initialisation as a sphere of radius bias": "几何初始化为半径 bias 的球",
    "weight normalisation": "权重归一化",
    "true: inverted initial sphere, for indoor scenes": "true：初始球内外翻转，用于室内场景",
    "initial inv_s = exp(10 * init_val)": "初始的 inv_s = exp(10 * init_val)",
    "must be sdf_network.d_out - 1": "必须等于 sdf_network.d_out - 1",
    "inputs; idr: point, view direction, normal": "输入；idr：点、视线方向、法线",
    "9 for idr, else 6": "idr 为 9，其余为 6",
    "colour channels": "颜色通道数",
    "encoding frequencies of view directions; no_view_dir: not used": (
        "视线方向的位置编码的频率数；no_view_dir 不使用"
    ),
    "sigmoid at the output": "输出端加 sigmoid",
}

RENDERER_MEANINGS = {
    "evenly spaced samples; at least 2 if n_importance > 0": "均匀采样点数；n_importance > 0 时至少为 2",
    "importance samples near the surface": "表面附近的重要性采样点数",
    "background samples outside the unit sphere; 0: no background network": (
        "单位球之外的背景采样点数；0：不建背景网络"
    ),
    "rounds of importance sampling; at least 1 if n_importance > 0": "重要性采样的轮数；n_importance > 0 时至少为 1",
    "stratified samples of the coarse network": "粗网络的分层采样点数",
    "importance samples; the fine network uses both": "重要性采样点数；细网络使用两者",
    "distance of the first sample, in unit-sphere radii; near = far = 0: the intersection with the unit sphere": (
        "光线上首个采样点的距离，以单位球半径计；与 far 同为 0 时取光线与单位球的交段"
    ),
    "distance of the last sample; above near, or both 0": "最后一个采样点的距离；大于 near，或两者都为 0",
    "> 0: samples are jittered in training": "> 0：训练时抖动采样点",
}

GRID_MEANINGS = {
    "levels of the hash grid, with two features per vertex": "哈希网格的层数，每个顶点两个特征",
    "cells per side of the first level, over the cube around the unit sphere": (
        "第一层每边的格数，范围为单位球的外接立方体"
    ),
    "cells per side of the last level; not below coarsest": "最后一层每边的格数；不小于 coarsest",
    "log2 of the hash table size; levels with more vertices are hashed": "哈希表大小的 log2；顶点更多的层使用哈希",
    "features passed to the colour network": "传给颜色网络的特征数",
    "coarsest levels without creases between cells; auto: packed.first_levels, 0 with neus and old checkpoints": (
        "单元之间没有折痕的最粗层数；auto：packed.first_levels，neus 和旧检查点为 0"
    ),
    "initial density, per unit-sphere radius": "初始密度，按单位球半径计",
    "samples per step, at most; rays are adjusted to it, up to train.batch_size": (
        "每步采样点数的上限；光线数随之调整，至多 train.batch_size"
    ),
    "cells per side of the occupancy grid": "占据栅格每边的格数",
    "dilation of the masks' visual hull, in unit-sphere radii": "掩膜的可视外壳的膨胀量，以单位球半径计",
    "initial step along a ray, in unit-sphere radii": "光线上的初始步长，以单位球半径计",
    "final step, also for images": "最终步长，渲染图像时也使用",
    "levels active at the start": "开始时启用的层数",
    "fraction of end_iter before the first update of the occupancy grid": "占据栅格何时首次更新，占 end_iter 的比例",
    "steps between updates of the occupancy grid": "两次更新占据栅格之间的步数",
    "difference of colours from which a ray counts less, such as 0.1 against dents at highlights (neus, nerf, "
    "fast_neus, fast_nerf); 0: all count alike": (
        "颜色差从多大起光线的权重减小，例如 0.1，避免高光处的凹陷（neus、nerf、fast_neus、fast_nerf）；0：权重都相同"
    ),
    "fraction of end_iter before the patch loss": "图块损失何时开始，占 end_iter 的比例",
    "patch radius in pixels": "图块半径，单位像素",
    "photographs that each is compared with: those that share most points": (
        "每张照片与多少张照片比较，取共有点最多的照片"
    ),
    "best-matching neighbours in the loss; not above neighbours": "损失中使用的最匹配的相邻照片数；不大于 neighbours",
    "steps of learning-rate warm-up": "学习率预热的步数",
    "weight of the free-space loss": "自由空间损失的权重：掩膜证明为空的点在表面之内的深度",
    "initial weight of the mean curvature, in 1 / unit-sphere radii; falls linearly to 0 at end_iter; not used "
    "with train.tf32; 0 saves an eighth of the time": (
        "平均曲率（1 / 单位球半径）的初始权重；线性减小，到 end_iter 为 0；train.tf32 时不使用；0 节省八分之一的时间"
    ),
    "as in sdf_grid": "同 sdf_grid",
    "as in packed": "同 packed",
}

PHOTOGRAPH_MEANINGS = {
    "true: learns an affine colour transform per photograph; auto: if neighbouring photographs differ by 0.2 stops; "
    "held-out views: none": ("true：为每张照片学习一个仿射颜色变换；auto：相邻照片相差 0.2 档时学习；留出视角没有变换"),
    "learning rate of the transforms, relative to train.learning_rate": "变换的学习率与 train.learning_rate 之比",
    "weight of the mean squared deviation from the identity": "与恒等变换之差的均方值的权重",
}

SPLAT_MEANINGS = {
    "3DGS or 2DGS; surfels give better meshes": "3DGS 或 2DGS；surfels 的网格更好",
    "degree of the spherical harmonics": "球谐函数的次数",
    "initial number; random Gaussians are added to the SfM points up to it; 1..most": (
        "初始的高斯数；SfM 点不足时补充随机的高斯；1..most"
    ),
    "maximum number": "高斯数的上限",
    "mcmc: weight of the mean opacity": "mcmc：平均不透明度的权重",
    "mcmc: weight of the mean standard deviation": "mcmc：平均标准差的权重",
    "weight of D-SSIM in the colour loss; rest: L1": "颜色损失中 D-SSIM 的权重，其余为 L1",
    "surfels with masks: weight of the depth distortion loss": "surfels（有掩膜时）：深度畸变损失的权重",
    "surfels: weight of the normal consistency loss": "surfels：法线一致性损失的权重",
}

MEANINGS_ZH = (
    FLAG_MEANINGS
    | SCENE_MEANINGS
    | TRAIN_MEANINGS
    | NETWORK_MEANINGS
    | RENDERER_MEANINGS
    | GRID_MEANINGS
    | PHOTOGRAPH_MEANINGS
    | SPLAT_MEANINGS
)

LOSSES_ZH = {
    "from": "开始于",
    "falls": "减小到 0",
    "with masks": "有掩膜时",
    "with masks or a plain background": "有掩膜或纯色背景时",
    "with SfM points or depth maps": "有 SfM 点或深度图时",
    "with learned exposure": "学习曝光时",
}
