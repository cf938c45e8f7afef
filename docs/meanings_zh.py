"""The Chinese of the help texts (models/commands/) and of the conf comments (confs/base), by their English.

Keyed by the text and not by the flag or key, so that a changed English text asks for a new translation.
"""

from __future__ import annotations

FLAG_MEANINGS = {
    "show this help message and exit": "显示帮助并退出",
    "mode, see above (default: train)": "模式，见上面的列表（默认：train）",
    "conf file (default: ./confs/demo.conf)": "配置文件（默认：./confs/demo.conf）",
    "name of the scene's folder; replaces CASE_NAME and ${case} in the conf": (
        "场景文件夹的名字；替换配置里的 CASE_NAME 和 ${case}"
    ),
    "replace one value of the conf, such as train.end_iter=1000; may be repeated": (
        "替换配置中的一个值，例如 train.end_iter=1000；可以重复使用"
    ),
    "region of interest: centre and radius of a sphere around the object, in the world frame of the "
    "cameras; the same as --set dataset.roi=...": (
        "感兴趣区域：围住物体的球的球心和半径，相机的世界坐标；等同于 --set dataset.roi=..."
    ),
    "the same as --set train.seed=N": "等同于 --set train.seed=N",
    "train: continue from the newest complete checkpoint, if there is one": (
        "train：从最新的完整检查点继续；没有检查点时从头开始"
    ),
    "train: start again in a folder with checkpoints; they are removed when the first new one is "
    "complete. prepare: replace the scene": (
        "train：在已有检查点的文件夹里从头开始；第一个新检查点写完整之后，原有检查点才会被删除。prepare：替换已有的场景"
    ),
    "use this checkpoint instead of the newest: of this program (.safetensors), of the published code "
    "(.pth) or Gaussians (.ply; for images and meshes only)": (
        "使用指定的检查点，而不是最新的那个：本程序的（.safetensors）、官方代码的（.pth），或高斯（.ply，只用"
        "于图像和网格）"
    ),
    "train: several scenes, or a file with one per line; trained one after the other or, under mpirun, "
    "one per rank at a time": "train：多个场景，或一个每行一个场景的文件；逐个训练，用 mpirun 时每个进程同时训练一个",
    "compare: folders of the experiments; the flag itself may be omitted": (
        "compare：各实验的文件夹；这个选项名本身可以省略"
    ),
    "replay: a file from the folder anomalies/ of a training": "replay：训练写在 anomalies/ 文件夹里的一个文件",
    "train, inspect: open the viewer in the browser as well (needs viser)": (
        "train、inspect：同时在浏览器里打开查看器（需要 viser）"
    ),
    "view, --view: address to listen on: 127.0.0.1 for this machine only (default), 0.0.0.0 for all "
    "machines that know the token of the printed address": (
        "view、--view：监听的地址：127.0.0.1 只限本机（默认），0.0.0.0 为所有知道所打印地址中令牌的机器"
    ),
    "view, --view: port of the viewer; if it is taken, the next free one (default: 8080)": (
        "view、--view：查看器的端口，被占用时取下一个空闲的（默认：8080）"
    ),
    "language of HTML pages: en, English, or zh, Chinese (default: that of the browser)": (
        "HTML 页面的语言：en 为英文，zh 为中文（默认：随浏览器）"
    ),
    "validate_mesh, evaluate: grid points per side (default: 512)": (
        "validate_mesh、evaluate：网格每边的采样点数（默认：512）"
    ),
    "validate_mesh, evaluate: level of the mesh, in negative signed distance (default: 0) or in density "
    "of a NeRF (default: 25)": (
        "validate_mesh、evaluate：网格所取的等值，单位为负的符号距离（默认：0）或 NeRF 的密度（默认：25）"
    ),
    "validate_mesh: extract only the box between these two corners, in the frame of --frame (default: "
    "the box of the scene)": "validate_mesh：只提取这两个角点之间的部分，坐标系由 --frame 决定（默认：场景的范围）",
    "validate_mesh: frame of the mesh: world, that of the scene's cameras, or unit, that of the unit "
    "sphere; evaluate: frame of --gt, --tau and --points (default: world)": (
        "validate_mesh：网格的坐标系：world 为场景相机的坐标系，unit 为单位球的坐标系；evaluate：--gt、--tau "
        "和 --points 的坐标系（默认：world）"
    ),
    "validate_mesh: do not move the vertices of marching cubes onto the level set": (
        "validate_mesh：不把 marching cubes 的顶点移到等值面上"
    ),
    "validate_mesh: pieces: remove pieces with less than a hundredth of the largest piece's area "
    "(default). views: also remove what no camera sees or the dilated masks exclude. largest: also "
    "remove all pieces but the largest": (
        "validate_mesh：pieces：删除面积不到最大一块百分之一的碎片（默认）。views：还删除没有相机看到、或被膨"
        "胀后的遮罩排除的部分。largest：再删除除最大一块之外的所有部分"
    ),
    "validate_mesh: keep all pieces": "validate_mesh：保留所有碎块",
    "validate_mesh: reduce to about N triangles (default: all; 100000 with a texture)": (
        "validate_mesh：简化到约 N 个三角形（默认：全部；带纹理时 100000）"
    ),
    "validate_mesh: colours from the photographs, per vertex or as a texture (default: vertex, if the "
    "format supports it)": "validate_mesh：取自照片的颜色，逐顶点或作为纹理（默认：格式支持时为 vertex）",
    "validate_mesh: width and height of the texture, texels (default: 2048)": (
        "validate_mesh：纹理的宽和高，单位为纹素（默认：2048）"
    ),
    "output file. validate_mesh: .ply, .obj, .glb or .stl (default: meshes/<step>.ply in the "
    "experiment's folder, .glb with a texture); render: .mp4, or a folder for PNGs (default: in "
    "render/); compare: .html (default: compare.html in the first experiment's folder)": (
        "输出文件。validate_mesh：.ply、.obj、.glb 或 .stl（默认：实验文件夹里的 meshes/<step>.ply，带纹理时"
        "为 .glb）；render：.mp4，或存放 PNG 的文件夹（默认：在 render/ 里）；compare：.html（默认：第一个实"
        "验文件夹里的 compare.html）"
    ),
    "validate_image: index of the photograph (default: 0)": "validate_image：照片的编号（默认：0）",
    "validate_image, render: divide width and height by L (default: train.validate_resolution_level of "
    "the conf; 1 for a camera-path file)": (
        "validate_image、render：宽和高除以 L（默认：配置中的 train.validate_resolution_level；相机路径文件为 1）"
    ),
    "render: orbit, photographs such as 0,5,9, or a camera-path file, also of nerfstudio (default: orbit)": (
        "render：orbit（环绕）、照片编号如 0,5,9，或相机路径文件，也可以是 nerfstudio 的（默认：orbit）"
    ),
    "render: outputs to show side by side, separated by commas: colour, normals, depth, shape, mesh "
    "(default: colour); shape is the shaded mesh, mesh the coloured one": (
        "render：并排显示的内容，用逗号分隔：colour、normals、depth、shape、mesh（默认：colour）；shape 为着"
        "色的网格形状，mesh 为带颜色的网格"
    ),
    "render: length of the video in seconds (default: 4, or that of the camera-path file)": (
        "render：视频的长度，单位为秒（默认：4，或相机路径文件中的值）"
    ),
    "render: frames per second (default: 24, or that of the camera-path file)": (
        "render：每秒帧数（默认：24，或相机路径文件中的值）"
    ),
    "evaluate: ground truth, a mesh (.ply, .obj, .stl) or a point cloud (.ply), in the frame of --frame "
    "(default: dataset.reference_mesh of the conf)": (
        "evaluate：真值，网格（.ply、.obj、.stl）或点云（.ply），坐标系由 --frame 决定（默认：配置中的 datase"
        "t.reference_mesh）"
    ),
    "evaluate: distance threshold of the F-score, in units of --frame (default: a hundredth of the "
    "radius of the region of interest)": (
        "evaluate：F 分数的距离阈值，单位由 --frame 决定（默认：感兴趣区域半径的百分之一）"
    ),
    "evaluate: points of structure from motion, a .ply in the frame of --frame (default: the scene's own)": (
        "evaluate：运动恢复结构得到的点，.ply 文件，坐标系由 --frame 决定（默认：场景自带的点）"
    ),
    "evaluate: score as published for the DTU data set, in millimetres; needs --dtu": (
        "evaluate：按 DTU 数据集发表的方法评分，单位是毫米；需要 --dtu"
    ),
    "evaluate: the folder with ObsMask/ and Points/stl/ of the DTU evaluation": (
        "evaluate：含有 DTU 评测的 ObsMask/ 和 Points/stl/ 的文件夹"
    ),
    "evaluate: number of the DTU scan (default: the number after scan in the scene's name)": (
        "evaluate：DTU 扫描的编号（默认：场景名中 scan 之后的数字）"
    ),
    "evaluate: table to which a row with the metrics is added; several experiments may share it "
    "(default: report/metrics.csv in the experiment's folder)": (
        "evaluate：追加一行指标的表格，多个实验可以共用（默认：实验文件夹里的 report/metrics.csv）"
    ),
    "prepare, reconstruct: a folder of photographs, or a video": "prepare、reconstruct：照片文件夹，或一段视频",
    "prepare, reconstruct: a folder of masks named like the photographs, or a method: colorkey (a "
    "backdrop of one colour), grabcut, box (rectangles on a few photographs), rembg (if installed)": (
        "prepare、reconstruct：与照片同名的遮罩文件夹，或一种方法：colorkey（单色背景）、grabcut、box（在几张"
        "照片上画框）、rembg（已安装时）"
    ),
    "prepare, reconstruct: with --masks box, a rectangle around the object on a photograph: left, top, "
    "right, bottom in pixels; may be repeated; further ones are read from boxes.json in the folder of "
    "photographs or in the scene folder": (
        "prepare、reconstruct：与 --masks box 一起使用，一张照片上围住物体的矩形：左、上、右、下，单位为像素"
        "；可以重复使用；其余的从照片文件夹或场景文件夹里的 boxes.json 读取"
    ),
    "prepare, reconstruct: number of frames to take from a video (default: 80)": (
        "prepare、reconstruct：从视频中取多少帧（默认：80）"
    ),
    "reconstruct: minutes of training (default: 10); estimation of the cameras and mesh extraction take "
    "additional time": "reconstruct：训练的分钟数（默认：10）；估计相机和提取网格另需时间",
    "auto: the GPU if one is usable, else the CPU (default: auto)": (
        "auto：有可用的 GPU 时用 GPU，否则用 CPU（默认：auto）"
    ),
    "index of the GPU (default: 0)": "GPU 的编号（默认：0）",
    "the block of the signed-distance field: sdf_network, sdf_grid; default: sdf_network for "
    "model.type = neus, sdf_grid for fast_neus": (
        "符号距离场的配置块：sdf_network、sdf_grid；default：neus 用 sdf_network，fast_neus 用 sdf_grid"
    ),
    "the block of the colour field; default: rendering_network": "颜色场的配置块；default：rendering_network",
    "the block of the radiance field: nerf, density_grid; default: nerf for model.type = nerf, density_grid "
    "for fast_nerf": "辐射场的配置块：nerf、density_grid；default：nerf 用 nerf，fast_nerf 用 density_grid",
}

SCENE_MEANINGS = {
    "folder of the experiment, made if missing; CASE_NAME or ${case}: --case": (
        "实验文件夹，不存在则创建；其中的 CASE_NAME 或 ${case} 由 --case 填入"
    ),
    "folders whose .py files are copied into base_exp_dir/recording; [] for none": (
        "这些文件夹里的 .py 文件会复制到 base_exp_dir/recording；[] 表示不复制"
    ),
    "scene folder: image/, optional mask/, the camera files": "场景文件夹：image/、可选的 mask/、相机文件",
    "file in data_dir: world_mat_i, scale_mat_i of each photograph": (
        "data_dir 里的文件：每张照片的 world_mat_i 和 scale_mat_i"
    ),
    "file in data_dir: its scale_mat_0 bounds the region that is meshed": (
        "data_dir 里的文件：其中的 scale_mat_0 划定提取网格的区域"
    ),
    "true: no camera may stand within the region of interest; false: it may, with fast_neus and fast_nerf": (
        "true：相机不得位于感兴趣区域之内；false：可以，仅限 model.type 为 fast_neus 或 fast_nerf"
    ),
    "in some published confs, read by nothing": "出现在某些官方配置里，没有代码读取它",
    "weight of the distance between the surface and the scene's points of structure from motion": (
        "曲面与场景中运动恢复结构点之间距离的权重"
    ),
    "how long they take part, as a share of end_iter": "这些点参与训练的时长，占 end_iter 的比例",
    "that a step takes beside those of packed": "每一步在 packed 的样本之外另取的样本数",
    "distance of samples along a ray, as a share of the distance from the middle": (
        "光线上样本的间距，占到中心距离的比例"
    ),
    "along the side of the grid of cells over contracted space": "压缩空间中单元网格的边长（单元数）",
    "a cell that absorbs less of the light is empty": "吸收的光少于此值的单元视为空",
    "in place of packed.prune_from, which masks can do with": "代替 packed.prune_from（后者适用于有掩码的情形）",
    "likewise of packed.shell": "同理，代替 packed.shell",
    "likewise of patches.weight": "同理，代替 patches.weight",
    "poses: adjusted to what photographs have in common, before training; focal: and focal lengths; none": (
        "poses：训练前按照片之间的共同特征调整相机位姿；focal：焦距也一并调整；none：不调整"
    ),
    'scene folder of held-out photographs for evaluate; "" for none': (
        'evaluate 用的留出照片的场景文件夹；"" 表示没有'
    ),
    "auto, neus, blender, ngp, nerfstudio, colmap or llff": (
        "auto、neus、blender、ngp、nerfstudio、colmap 或 llff；auto 按文件识别"
    ),
    "photographs are read at one n-th of their width and height": "照片按宽高的 n 分之一读入",
    "photographs 0, n, 2 n, ... are held out for evaluate; 0: none": "第 0、n、2n…… 张照片留给 evaluate；0：不留",
    "numbers of photographs that are held out instead": "改为留出这些编号的照片",
    "numbers of the photographs to train on; [] all that are not held out": "只用这些编号的照片训练；[] 为所有未留出的",
    '"x y z r": sphere around the object, world frame; "" found by itself': (
        '"x y z r"：围住物体的球，世界坐标；"" 自动寻找'
    ),
    'ground-truth mesh in the unit-sphere frame for evaluate; "" for none': (
        'evaluate 用的真值网格，在单位球坐标系中；"" 表示没有'
    ),
}

TRAIN_MEANINGS = {
    "what a step keeps of Adam's second moment; below 1": "Adam 二阶矩每步保留的比例",
    "what Adam divides by at the least": "Adam 的分母至少加上它",
    "at the end of the warm-up": "学习率，预热结束时达到",
    "the optimiser (not a published key)": "优化器（官方没有）",
    "what is left of it at end_iter, as a fraction": "到 end_iter 时学习率剩下的比例",
    "steps": "训练步数",
    "rays per step": "每步的光线数",
    "validation images are this many times smaller than the photographs": "验证图比照片小多少倍",
    "true: white behind the object, for photographs masked with white": (
        "true：物体后面是白色，用于以白色填充背景的照片"
    ),
    "steps between checkpoints; 0: only the last": "每隔多少步写检查点；0：只写最后一个",
    "steps between validation images; 0: never": "每隔多少步写验证图；0：不写",
    "steps between meshes; 0: never": "每隔多少步写网格；0：不写",
    "steps between reports on the terminal": "每隔多少步在终端报告一次",
    "weight of the eikonal loss": "eikonal 损失的权重",
    "weight of the mask loss; above 0 the scene needs masks": "掩膜损失的权重；大于 0 时场景必须有掩膜",
    "steps over which the learning rate rises from 0; 0..end_iter, below end_iter": (
        "学习率从 0 升起所用的步数；0..end_iter，必须小于 end_iter"
    ),
    "steps over which the section angle is annealed; 0: the final angle at once": (
        "区段夹角退火所用的步数；0：一开始就用最终的夹角"
    ),
    "skipped steps in a row (numbers not finite) before the run goes back, with half the rate": (
        "连续跳过多少步（数值不是有限值）后退回完好的状态，学习率减半"
    ),
    "how many of the newest checkpoints stay; 0: all": "保留最新的几个检查点；0：全部保留",
    "how it gets there: cosine (NeuS) or exponential (NeRF) (not a published key)": (
        "学习率怎样降到那里：cosine（NeuS）或 exponential（NeRF）（官方没有）"
    ),
    "of every random draw; 0..2147483647 (not a published key)": "所有随机数的种子（官方配置没有这个键）",
    "rays at a time when an image is rendered, or auto; changes memory, never a result (likewise)": (
        "渲染图像时一次处理的光线数，或 auto；只影响内存，不影响结果（官方没有）"
    ),
    "rays of a batch differentiated at a time, or auto; changes memory, and roundings only (likewise)": (
        "一批光线中一次求导的光线数，或 auto；只影响内存和舍入误差（官方没有）"
    ),
    "GB that auto chunks keep within: resident (CPU), of the card (CUDA); auto: what is free less a tenth (likewise)": (
        "auto 的分块所遵守的内存上限，单位 GB：CPU 上为常驻内存，CUDA 上为显存；auto：空闲内存的九成（官方没有）"
    ),
    "true: products on CUDA in TF32, 10 bits of a factor: faster; its effect was not seen on a card yet (likewise)": (
        "true：CUDA 上的矩阵乘法用 TF32（每个因子 10 位尾数），更快；对结果的影响还没有在显卡上看到过（官方没有）"
    ),
    "of averaged weights, which pictures and meshes then come from, such as 0.999; 0: none (likewise)": (
        "滑动平均权重的衰减率，例如 0.999，出图和网格用平均后的权重；0：不平均（官方没有）"
    ),
    "grid points per side of the meshes of val_mesh_freq; >= 2 (likewise)": (
        "按 val_mesh_freq 写出的网格每边的采样点数（官方没有）"
    ),
}

NETWORK_MEANINGS = {
    "hidden layers": "隐藏层数",
    "their width": "隐藏层宽度",
    "neus: a surface; nerf: a radiance field of two networks of the block nerf": (
        "neus：曲面；nerf：辐射场，由 nerf 块的两个网络组成"
    ),
    "a point outside the sphere is (x, y, z, 1) / r: 4; with type = nerf (x, y, z): 3": (
        "球外的点写成 (x, y, z, 1) / r：4；type = nerf 时为 (x, y, z)：3"
    ),
    "a direction: 3": "方向：3",
    "octaves of the point's encoding": "点的位置编码的倍频数；0 表示不编码",
    "octaves of the direction's encoding": "方向的位置编码的倍频数；0 表示不编码",
    "outputs of the variant without use_viewdirs": "不用 use_viewdirs 时的输出数",
    "hidden layers after which the encoded point joins again": "在这些隐藏层之后再次接入编码后的点",
    "true where n_outside > 0 or type = nerf": "n_outside > 0 或 type = nerf 时必须为 true",
    "1 distance + d_feature": "1 个距离 + d_feature",
    "a point: 3": "点：3",
    "width of the hidden layers; above 3 + 6 * multires where skip_in is not empty": (
        "隐藏层宽度；skip_in 非空时必须大于 3 + 6 * multires"
    ),
    "layers that the encoded point joins again; each in 1..n_layers": (
        "在这些层再次接入编码后的点；都在 1..n_layers 之内"
    ),
    "radius of the sphere that training starts from, in the scaled frame": "训练起始的球的半径，在缩放后的坐标系中",
    "points are multiplied by it on the way in, distances divided on the way out": "输入的点乘以它，输出的距离除以它",
    "start from that sphere": "从这个球开始训练（几何初始化）",
    "weights as direction and length": "把权重分解为方向和长度",
    "true: start with the sphere turned inside out, for rooms seen from within": (
        "true：从内外翻转的球开始，用于从室内拍摄的房间"
    ),
    "sharpness to start from: inv_s = exp(10 * init_val)": "起始的锐度：inv_s = exp(10 * init_val)",
    "sdf_network.d_out - 1": "等于 sdf_network.d_out - 1",
    "inputs: idr (point, view, normal), no_view_dir, no_normal": (
        "输入：idr（点、视线、法线）、no_view_dir、no_normal"
    ),
    "9 for idr, 6 for the others": "idr 为 9，其余为 6",
    "red, green, blue": "红、绿、蓝",
    "width of the hidden layers": "隐藏层宽度",
    "octaves of the direction's encoding; unused by no_view_dir": "方向的位置编码的倍频数；no_view_dir 不使用",
    "sigmoid at the end, so that colours lie in 0..1": "末尾加 sigmoid，使颜色落在 0..1",
}

RENDERER_MEANINGS = {
    "stratified, to start with; >= 1, >= 2 where n_importance > 0": "起始的分层采样点数；n_importance > 0 时至少为 2",
    "placed where the surface is likely": "加在表面可能所在之处的采样点数",
    "outside the unit sphere, for the background; 0: no background network": (
        "单位球之外、用于背景的采样点数；0：不建背景网络"
    ),
    "rounds in which n_importance are placed; >= 1 where n_importance > 0": (
        "分几轮放置 n_importance 个点；n_importance > 0 时至少为 1"
    ),
    "stratified, for the coarse network": "粗网络的分层采样点数",
    "placed where the coarse network sees something; the fine network gets both": (
        "加在粗网络看到东西之处的采样点数；细网络使用两者"
    ),
    "where samples begin along the unit ray, in working-frame units; 0 with far = 0: the span of the unit sphere": (
        "采样沿单位光线开始之处，以工作坐标系为单位；与 far 同为 0 时取单位球的范围"
    ),
    "where they end; above near, or both 0": "采样结束之处；大于 near，或两者都为 0",
    "> 0: jitter the samples in training; 0: never": "> 0：训练时抖动采样点；0：不抖动",
}

GRID_MEANINGS = {
    "of the grid, each with two numbers at every corner": "网格的层数，每层每个角点存两个数",
    "cells along the side of the cube around the unit sphere in the first level": "第一层沿单位球外接立方体每边的格数",
    "in the last one; not below coarsest": "最后一层的格数；不小于 coarsest",
    "a level with more than 2^log2_rows corners shares its numbers among them by a hash": (
        "角点多于 2^log2_rows 的层用哈希让角点共用数值"
    ),
    "width of the hidden layers behind the grid": "网格之后隐藏层的宽度",
    "what the colour network reads of a point": "颜色网络从每个点读取的特征数",
    "everywhere to begin with, per working-frame unit": "起始时处处相同的密度，按每工作坐标系单位计",
    "that a step takes; the number of rays follows, up to train.batch_size": (
        "每步的采样点数；光线数随之而定，至多 train.batch_size"
    ),
    "along the side of the grid of cells that tells what is empty": "标记空处的占据网格每边的格数",
    "the hull of the masks is this much larger than they are, in working-frame units": (
        "由掩码得到的外壳向外放宽的距离，以工作坐标系为单位"
    ),
    "distance of samples along a ray to begin with, in working-frame units": (
        "起始时光线上采样点的间距，以工作坐标系为单位"
    ),
    "and in the end, and in pictures": "最后以及出图时的间距",
    "when it is the last, as a share of end_iter": "间距何时降到最后的值，占 end_iter 的比例",
    "levels that are read to begin with": "起始时读取的层数",
    "when all are, as a share of end_iter": "何时读取所有层，占 end_iter 的比例",
    "when cells are first asked whether they are empty, as a share of end_iter": (
        "何时开始判断格子是否为空，占 end_iter 的比例"
    ),
    "steps between such questions": "两次判断之间的步数",
    "a cell that absorbs less of the light that crosses it is empty": "吸收光的比例小于它的格子视为空",
    "of one minus their correlation; 0: none, which saves time": "一减其相关系数在损失中的权重；0：不用，更省时间",
    "when it takes part, as a share of end_iter": "何时开始起作用，占 end_iter 的比例",
    "pixels from the middle of a patch to its border": "从图块中心到边缘的像素数",
    "photographs that each is compared with, those that share most points with it": (
        "每张照片与多少张照片比较，取与它共有点最多的那些"
    ),
    "so many of them have to agree; not above neighbours": "其中须有这么多张一致；不大于 neighbours",
    "steps over which the rates rise": "学习率逐渐升高所用的步数",
    "radius of the sphere that training starts from": "训练开始时球面的半径",
    "cells farther from the surface than so many 1 / inv_s are empty, or inside": (
        "离表面超过这么多个 1 / inv_s 的格子视为空处或物体内部"
    ),
    "weight of the depth inside the object of what the masks prove free": (
        "掩码表明是空处的采样点陷入物体的深度在损失中的权重"
    ),
    "of the distance: analytic, or numerical, by differences over a cell of the finest level": (
        "距离的梯度：analytic 为解析，numerical 为在最细一层一格上的差分"
    ),
    "weight of the mean size of the distance's second derivative; 0: none, which saves time": (
        "距离二阶导数平均大小的权重；0：不用，更省时间"
    ),
    "share of them, at the least, that lies anywhere in the hull once all levels are read, for the losses on the field "
    "itself": "其中至少有这么大的比例在读取所有层之后散布在外壳内各处，用于场本身的损失",
    "likewise for the sharpness": "锐度的学习率，同上",
    "factor on train.learning_rate for the networks; that of the grid is 1": (
        "网络的学习率对 train.learning_rate 的倍数；网格为 1"
    ),
}

PHOTOGRAPH_MEANINGS = {
    "true: an affine change of colours for each photograph, the identity on average; views that are held out get "
    "none": "true：每张照片各有一个颜色的仿射变换，平均起来是恒等变换；留出的视角没有",
    "factor on train.learning_rate for these": "它们的学习率是 train.learning_rate 的几倍",
    "weight of their mean square, which keeps them near the identity": "它们均方值的权重，使其接近恒等变换",
}

SPLAT_MEANINGS = {
    "ellipsoids (3DGS) or surfels (2DGS), which meshes are made with": (
        "ellipsoids：椭球（3DGS）；surfels：面元（2DGS），提取网格用它"
    ),
    "of the spherical harmonics of the colours": "颜色的球谐函数的次数",
    "when all degrees are read, as a share of end_iter": "何时用上全部次数，占 end_iter 的比例",
    "Gaussians to begin with, beside the points of structure from motion; 1..most": (
        "开始时的高斯数，不足的部分补在运动恢复结构的点之外；1..most"
    ),
    "bound on their number": "高斯数的上限",
    "share of the first ones that starts beyond the region, without masks": "没有掩膜时，开始就放在区域之外的比例",
    "their standard deviation, in mean distances of three neighbours": "开始时的标准差，以最近三点的平均距离为单位",
    "how their number changes: adaptive (3DGS: clone, split, prune, reset) or mcmc (relocation)": (
        "数目如何变化：adaptive（3DGS：克隆、分裂、剪除、重置）或 mcmc（搬移）"
    ),
    "when it begins to change, as a share of end_iter": "数目何时开始变化，占 end_iter 的比例",
    "and when it stops; densify_from..1": "何时停止变化；densify_from..1",
    "steps between changes": "两次变化之间的步数",
    "fainter ones are pruned or relocated": "更淡的会被剪除或搬移",
    "adaptive: gradients of the centres by the sizes of their parts (AbsGS)": (
        "adaptive：中心的梯度按各部分的绝对值相加（AbsGS）"
    ),
    "adaptive: gradient of a projected centre, in half pictures, above which it grows": (
        "adaptive：投影中心的梯度（以半幅图像为单位）超过它就增生"
    ),
    "adaptive: larger ones are split, smaller ones cloned, in spreads of the cameras": (
        "adaptive：比它大的分裂，小的克隆，以相机散布为单位"
    ),
    "adaptive: how often opacities are reset, as a share of end_iter": (
        "adaptive：每隔多久重置不透明度，占 end_iter 的比例"
    ),
    "mcmc: factor on their number at a change": "mcmc：每次变化时数目的倍数",
    "mcmc: of faint ones, over the rate of the centres": "mcmc：淡的高斯的噪声，与中心学习率之比",
    "mcmc: weight of the mean opacity": "mcmc：平均不透明度的权重",
    "mcmc: weight of the mean standard deviation": "mcmc：平均标准差的权重",
    "of the structural dissimilarity in the colour loss, beside absolute differences": (
        "颜色损失中结构不相似度所占的比例，其余为绝对差"
    ),
    "surfels: weight of the distortion of depths along a ray": "surfels：光线上深度畸变损失的权重",
    "surfels: weight of the disagreement of normals with those of the depths": (
        "surfels：法线与深度所示法线不一致的权重"
    ),
    "rate of the centres to begin with, in spreads of the cameras": "中心的初始学习率，以相机散布为单位",
    "of the harmonics of degree 0": "0 次球谐系数的学习率",
    "of the others": "其余球谐系数的学习率",
    "of the opacities, as logits": "不透明度（logit）的学习率",
    "of the standard deviations, as logarithms": "标准差（对数）的学习率",
    "of the rotations, as quaternions": "旋转（四元数）的学习率",
    "and in the end": "结束时的学习率",
    "their opacity": "开始时的不透明度",
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
